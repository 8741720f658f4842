package compile

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// A manager has many backends of each host: all have the host's name in one place, which messages do not.
func TestBackendsOfAHostShareItsName(t *testing.T) {
	var names []*byte
	for i := range 3 {
		vip, err := StoredVIP(&weirv1.VIP{Name: "shop", Address: "203.0.113.1", Endpoints: []*weirv1.Endpoint{{Protocol: "TCP", Port: 80, Backends: []*weirv1.Backend{
			{Host: strings.Clone("host1"), Address: fmt.Sprintf("10.0.0.%d", i+1)},
		}}}})
		if err != nil {
			t.Fatal(err)
		}
		host := vip.Endpoints[0].Backends[0].Host
		if names = append(names, unsafe.StringData(host)); host != "host1" || names[i] != names[0] {
			t.Errorf("backend %d has a name %q of its own", i, host)
		}
	}
}
