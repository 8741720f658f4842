package admission

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/model"
)

// merging is VIP number i with multipath, with n backends on one host and one on another.
func merging(i, n int) model.VIP {
	backends := []model.Backend{on("host2", fmt.Sprintf("10.5.%d.250", i))}
	for j := range n {
		backends = append(backends, on("host1", fmt.Sprintf("10.5.%d.%d", i, j+1)))
	}
	vip := newVIP(fmt.Sprint("joined", i), fmt.Sprintf("203.0.115.%d", i+1), backends...)
	for i := range vip.Endpoints {
		vip.Endpoints[i].Multipath = true
	}
	return vip
}

// Hosts have half of their tables for multipath: 131 072 pairs of peers.
func TestRoomForMultipath(t *testing.T) {
	const n = 200
	const most = 131072 / (n * (n + 1))
	s := town()
	for i := range most {
		s.PutVIP(merging(i, n))
	}
	refused := func(what string, vip model.VIP, want string) {
		t.Helper()
		_, err := VIPs(s, []model.VIP{vip}, true)
		if err == nil != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	refused("one more", merging(most, n), "vips[0].endpoints: host host1 can't have more multipath: it needs 4 endpoints and 160800 peers, has room for 2048 and 131072")
	refused("a small one", merging(most, 1), "")
	refused("one that is there", merging(0, n), "")
	off := merging(most, n)
	off.Endpoints[0].Multipath = false
	refused("without multipath", off, "")
	s.RemoveVIP("joined0")
	refused("in the place of another", merging(most, n), "")
	s.PutVIP(merging(most, n))
	s.PutVIP(merging(most+1, n))
	refused("less, but too much", merging(1, n-1), "")
	refused("as much, and too much", merging(1, n), "")
}
