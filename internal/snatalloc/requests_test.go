package snatalloc

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

// A workload has one request under way. Another one is refused until that has ended; those of other workloads are not.
func TestRequestsOfAWorkloadComeOneByOne(t *testing.T) {
	ports := newRequests()
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
