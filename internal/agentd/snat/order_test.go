package snat

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	agentsnat "github.com/weirlb/weir/internal/datapath/agent/snat"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/wire"
)

// listOf is all of source NAT, as a manager's stream begins with.
func listOf(cluster uint64, s ...model.HostSNAT) wire.HostUpdate {
	for i := range s {
		s[i].Cluster, s[i].MaxPorts, s[i].KeepPorts, s[i].IdleTimeout = cluster, 512, 8, time.Minute
	}
	return wire.HostUpdate{Cluster: cluster, SNATSnapshot: true, SNAT: s}
}

func (w *portWorld) holds(t *testing.T, what string, want ...model.Range) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.ranges, want) {
		t.Errorf("%s: ranges are %v, not %v", what, w.ranges, want)
	}
}

func mustApply(t *testing.T, p *Ports, update wire.HostUpdate) {
	t.Helper()
	if err := p.Apply(update); err != nil {
		t.Fatal(err)
	}
}

// An agent starts anew whose tables hold ranges that were given at 7. A manager that is behind takes none of them away,
// which connections use; one that has taken some back meanwhile does, and so does another cluster.
func TestRestartedAgentTakesNoOlderList(t *testing.T) {
	for name, key := range map[string]model.SNATKey{
		"v4": portKey, "v6": {VIP: netip.MustParseAddr("2001:db8::20"), Address: netip.MustParseAddr("fd00::2")},
	} {
		t.Run(name, func(t *testing.T) {
			live := []model.HostSNAT{{Key: key, Ranges: []model.Range{300, 301, 302}, Reclaim: []model.Range{302}, Written: 7, Cluster: 1}}
			for what, c := range map[string]struct {
				list wire.HostUpdate
				want []model.Range
			}{
				"behind":          {listOf(1, model.HostSNAT{Key: key, Ranges: []model.Range{300}, Written: 3}), []model.Range{300, 301, 302}},
				"as new":          {listOf(1, model.HostSNAT{Key: key, Ranges: []model.Range{300, 301, 302, 303}, Written: 7}), []model.Range{300, 301, 302, 303}},
				"taken back":      {listOf(1, model.HostSNAT{Key: key, Ranges: []model.Range{300}, Written: 9}), []model.Range{300}},
				"another cluster": {listOf(2, model.HostSNAT{Key: key, Ranges: []model.Range{400}, Written: 2}), []model.Range{400}},
				"not listed":      {listOf(1), nil},
			} {
				w := &portWorld{}
				p := New(Config{Datapath: w, Sender: w, Manager: w, Live: live}, "h1", slog.New(slog.DiscardHandler), func([]netip.Addr) {})
				mustApply(t, p, c.list)
				w.holds(t, what, c.want...)
				if behind := what == "behind"; behind != (len(w.closed) == 1) {
					t.Errorf("%s: closed are %v", what, w.closed)
				}
				mustApply(t, p, listOf(c.list.Cluster, model.HostSNAT{Key: key, Ranges: []model.Range{500}, Written: 12}))
				w.holds(t, what+", then a newer list", 500)
			}
		})
	}
}

// allocated is an answer of the manager that a workload has these ranges.
func allocated(written uint64, ranges ...uint32) *weirv1.PortAllocation {
	return &weirv1.PortAllocation{Ranges: ranges, Written: written}
}

// What is given by an answer that a newer list has overtaken may be somebody else's by now; what a newer list gives is
// not taken by the answer to a release before it.
func TestPortsOfALateAnswer(t *testing.T) {
	w, p := newPortWorld(t, 300, 301)
	mustApply(t, p, listOf(0, model.HostSNAT{Key: portKey, Ranges: []model.Range{300, 301}, Written: 9}))
	client := p.workloads[portKey.Address]
	p.handleAllocated(t.Context(), portKey, &weirv1.AllocatePortsResponse{Allocation: allocated(8, 300, 301, 302)}, nil)
	w.holds(t, "given before the list", 300, 301)
	p.handleAllocated(t.Context(), portKey, &weirv1.AllocatePortsResponse{Allocation: allocated(10, 300, 301, 302)}, nil)
	w.holds(t, "given after the list", 300, 301, 302)
	p.handleReleased(client, &weirv1.ReleasePortsResponse{Allocation: allocated(8, 300, 302)}, nil)
	w.holds(t, "released before the list", 300, 301, 302)
	p.handleReleased(client, &weirv1.ReleasePortsResponse{Allocation: allocated(11, 300, 302)}, nil)
	w.holds(t, "released after the list", 300, 302)
}

// The answer to a request was lost, and the list that tells of it is not here yet: the answer to the next request, or to
// a release, has what the lost one gave and what it took.
func TestALostAnswerIsMadeUpByTheNext(t *testing.T) {
	for name, answer := range map[string]func(*Ports, *snatClient){
		"allocate": func(p *Ports, _ *snatClient) {
			p.handleAllocated(t.Context(), portKey, &weirv1.AllocatePortsResponse{Allocation: allocated(10, 300, 302, 303)}, nil)
		},
		"release": func(p *Ports, client *snatClient) {
			p.handleReleased(client, &weirv1.ReleasePortsResponse{Allocation: allocated(10, 300, 302, 303)}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := newPortWorld(t, 300, 301)
			client := p.workloads[portKey.Address]
			client.releasing[301] = closedRange{since: time.Now(), offered: true}
			answer(p, client)
			w.holds(t, "after the next answer", 300, 302, 303)
			if len(w.closed) != 0 || len(client.releasing) != 0 {
				t.Errorf("closed are %v, and %v are to be released", w.closed, client.releasing)
			}
			mustApply(t, p, listOf(0, model.HostSNAT{Key: portKey, Ranges: []model.Range{300, 301, 302}, Written: 9}))
			w.holds(t, "after the list of the lost answer", 300, 302, 303)
		})
	}
}

// A manager's answer that names ranges out of order is refused as a whole.
func TestAMalformedAllocationIsRefused(t *testing.T) {
	w, p := newPortWorld(t, 300, 301)
	p.handleAllocated(t.Context(), portKey, &weirv1.AllocatePortsResponse{Allocation: allocated(10, 303, 302)}, nil)
	w.holds(t, "after it", 300, 301)
}

// A range that is opened again for what waits is not given back, and one that may have been given back is not opened.
func TestPortsAreNotGivenBackForWhatWaits(t *testing.T) {
	for name, c := range map[string]struct {
		lost bool // the answer to the release
		want []string
	}{
		"opened again":  {false, nil},
		"asked already": {true, []string{"release [301]", "release [301]"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := newPortWorld(t, 300, 301)
			w.idle = []agentsnat.IdleRange{{Range: 301}}
			now := time.Now()
			p.release(t.Context(), now)
			if c.lost {
				w.unreleased = connect.NewError(connect.CodeUnavailable, errors.New("the leader died"))
				p.release(t.Context(), now.Add(2*releaseInterval))
				p.asking.Wait()
			}
			client := p.workloads[portKey.Address]
			client.queue = []*queuedFlow{{flow: waits(1, "one").Flow}}
			p.release(t.Context(), now.Add(4*releaseInterval))
			p.asking.Wait()
			w.want(t, c.want...)
			if stays := len(w.closed) == 1; stays != c.lost {
				t.Errorf("closed are %v", w.closed)
			}
		})
	}
}
