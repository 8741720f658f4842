package nodesync

import (
	"fmt"
	"log/slog"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

// What other managers stored of a node is read once for all that ask, again when it was written again, and kept for nodes
// that are there.
func TestStoredReportsAreReadOnce(t *testing.T) {
	r, s := NewReports(slog.New(slog.DiscardHandler)), &store.State{}
	says := func(name, uplink string) model.Node {
		node := model.Node{Name: name, Role: model.RoleHost}
		s.PutNode(node)
		s.Status.Set(name, nodestatus.Status{Generation: 7, Detail: []byte(`{"host":{"uplink":"` + uplink + `"}}`)})
		return node
	}
	node := says("host1", "eth0")
	_, first := r.Newest(s, node)
	if _, again := r.Newest(s.Clone(), node); first.GetHost().GetUplink() != "eth0" || again != first {
		t.Errorf("%v was read, then again as %v", first, again)
	}
	says("host1", "eth1")
	if said, is := r.Newest(s, node); is.GetHost().GetUplink() != "eth1" || said.Generation != 7 {
		t.Errorf("it says %v now, and runs %d", is, said.Generation)
	}
	for i := range 50 { // nodes come and go
		name := fmt.Sprint("other", i)
		r.Newest(s, says(name, "eth0"))
		s.RemoveNode(name)
	}
	if len(r.stored) > 5 {
		t.Errorf("%d reports are kept, of 1 node", len(r.stored))
	}
	if _, none := r.Newest(s, model.Node{Name: "new"}); none == nil || none.GetHost() != nil {
		t.Errorf("a node that said nothing says %v", none)
	}
}

// Of a report that is too large for the store, as a mux's with a counter for each of many endpoints, only the part is encoded
// that the store gets.
func TestLargeReportsAreNotEncodedWhole(t *testing.T) {
	allocated := func(endpoints int) float64 {
		detail := &weirv1.NodeStatus{Mux: &weirv1.MuxStatus{XdpMode: "native"}}
		for i := range endpoints {
			detail.Mux.Endpoints = append(detail.Mux.Endpoints, &weirv1.EndpointCounter{
				Endpoint: &weirv1.EndpointKey{Vip: fmt.Sprintf("203.0.113.%d", i%256), Protocol: "TCP", Port: 80}, Packets: 1 << 40, Bytes: 1 << 50,
			})
		}
		r := report{detail: detail, bare: withoutCounters(detail)}
		return testing.AllocsPerRun(5, func() {
			if text, err := r.forStore(); err != nil || len(text) > maxDetail {
				t.Fatalf("%d bytes are stored: %v", len(text), err)
			}
		})
	}
	if some, many := allocated(4000), allocated(16_384); many > 2*some {
		t.Errorf("16384 endpoints allocate %.0f times, 4000 %.0f times", many, some)
	}
}

// A generation that a mux runs since is of its newest report, whatever came in between; and what the store did not take stays
// so until it is given more.
func TestAGenerationIsOfTheNewestReport(t *testing.T) {
	r := NewReports(slog.New(slog.DiscardHandler))
	first := report{at: noon, stored: noon, Status: nodestatus.Status{Seen: noon, Generation: 1}}
	r.setReport("mux1", first, false)
	r.setUnstored("mux1")
	second := first
	second.at, second.Seen, second.Reason, second.Rejected = noon.Add(1), noon.Add(1), "no room", 2
	r.setReport("mux1", second, false)
	if _, is := r.raise("mux1", nodestatus.Status{}, 1, noon.Add(2)); is {
		t.Error("it has that generation")
	}
	raised, is := r.raise("mux1", nodestatus.Status{}, 3, noon.Add(2))
	if kept, here := r.here("mux1", nodestatus.Status{}); !is || !here || raised.Generation != 3 || kept.Generation != 3 || kept.Reason != "no room" || !kept.unstored {
		t.Errorf("%t: %+v, kept is %+v", is, raised, kept)
	}
	second.stored = noon.Add(3)
	r.setReport("mux1", second, false)
	if kept, _ := r.here("mux1", nodestatus.Status{}); kept.unstored {
		t.Error("the store was given it, and it counts as not taken")
	}
	if _, is := r.raise("mux2", nodestatus.Status{}, 1, noon); is {
		t.Error("a mux that reported nothing has a report")
	}
}
