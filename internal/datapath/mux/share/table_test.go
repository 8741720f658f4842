package share

import (
	"net/netip"
	"testing"
)

func TestShareKeys(t *testing.T) {
	for _, want := range []string{"198.51.100.0/24", "0.0.0.0/24", "255.255.255.0/24", "2001:db8:1:200::/56", "::/56", "ffff:ffff:ffff:ff00::/56"} {
		if got := prefixOf(shareKey(7, netip.MustParsePrefix(want))); got.String() != want {
			t.Errorf("%s is %s", want, got)
		}
	}
}
