package manager

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

// A workload has one request under way. Another one is refused until that has ended; those of other workloads are not.
func TestRequestsOfAWorkloadComeOneByOne(t *testing.T) {
	ports := newPortRequests(func() (int, bool) { return portsOpen, false })
	now := time.Unix(100000, 0)
	const often = 1000
	begin := func(key model.SNATKey) (func(int), error) {
		_, end, err := ports.begin(key, often, now)
		return end, err
	}
	elsewhere := model.SNATKey{VIP: netip.MustParseAddr("203.0.113.21"), Address: firstSNATClient.Address}
	for range 3 {
		end, err := begin(firstSNATClient)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			_, err := begin(firstSNATClient)
			if reason, after, _ := rpc.PortsRefused(err); reason != rpc.PortsOutstanding || after != time.Second/often {
				t.Errorf("another request of the workload: %v, to be made again in %s", err, after)
			}
		}
		for _, other := range []model.SNATKey{secondSNATClient, elsewhere} {
			end, err := begin(other)
			if err != nil {
				t.Fatalf("a request of %s: %v", other, err)
			}
			end(0)
		}
		end(1)
	}
}

// A request is under way, and is not answered, until the muxes have answered: replies to a port that a mux does not know
// are lost.
func TestPortsAreGivenWhenMuxesKnow(t *testing.T) {
	url, mux, hosts := leaving(t)
	client := dial(t, url)
	mux.setMute(true)
	answered := make(chan error, 1)
	go func() {
		_, err := allocate(t, client, "host1", firstSNATClient, 8)
		answered <- err
	}()
	eventually(t, "the mux reads them", func() bool { return len(mux.owners(firstSNATClient.VIP)) > 2 })
	// Each of these is answered long after the first would have been, had it not waited.
	for range 20 {
		_, err := allocate(t, client, "host1", firstSNATClient, 8)
		if reason, _, _ := rpc.PortsRefused(err); reason != rpc.PortsOutstanding {
			t.Fatalf("another request of the workload, before the mux had answered: %v", err)
		}
	}
	if len(answered) > 0 {
		t.Errorf("answered (%v) before the mux had", <-answered)
	}
	if n := len(hosts[0].holds(firstSNATClient).Ranges); n != 1 {
		t.Errorf("the host has %d ranges before the mux answered", n)
	}
	mux.setMute(false)
	eventually(t, "the mux has reported", mux.report)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if _, err := allocate(t, client, "host1", firstSNATClient, 8); err != nil {
		t.Errorf("the next request: %v", err)
	}
}
