package snatalloc

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snatport"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
	"github.com/weirlb/weir/internal/testkit/teststore"
)

// walk is the audit that looks at everything each time, which those of what changed are held to.
type walk struct {
	*Allocator
	seen map[quarantined]time.Time
}

// wrong are all port allocations that are not what they must be, as they must be.
func (w *walk) wrong(s *store.State) map[model.SNATKey]snatport.Allocation {
	wrong, vips := map[model.SNATKey]snatport.Allocation{}, map[netip.Addr]bool{}
	for key := range s.Ports.Keys() {
		vips[key.VIP] = true
	}
	for key := range s.Ports.Clients() {
		vips[key.VIP] = true
	}
	for vip := range vips {
		maps.Copy(wrong, s.ChangedPorts(vip, w.Now()))
		maps.Copy(wrong, s.Ports.ResolveDoubles(vip, func(key model.SNATKey) uint64 { return uint64(s.PortsWritten.At(key)) }))
	}
	return wrong
}

func (w *walk) observe(s *store.State, now time.Time) {
	next := map[quarantined]time.Time{}
	for key, h := range s.Ports.All() {
		for _, r := range h.Quarantined {
			at := quarantinedOf(key, r)
			if next[at] = now; !w.seen[at].IsZero() {
				next[at] = w.seen[at]
			}
		}
	}
	w.seen = next
}

// expired are all allocations that have ranges whose quarantine is over, without these.
func (w *walk) expired(s *store.State, now time.Time) map[model.SNATKey]snatport.Allocation {
	done := map[model.SNATKey]snatport.Allocation{}
	held := &quarantines{Allocator: w.Allocator, seen: w.seen}
	for key, h := range s.Ports.All() {
		_, _, listed := s.SNATClientWithVIP(key)
		if len(h.Quarantined) == 0 {
			if h.Empty() && !listed {
				done[key] = h
			}
			continue
		}
		next, some := h.EndQuarantine(func(r snatport.Quarantined) bool {
			first := w.seen[quarantinedOf(key, r)]
			return !first.IsZero() && now.Sub(first) >= w.Quarantine
		})
		if some && w.Hub.AcknowledgedByMuxes() >= s.PortsWritten.At(key) && !held.isStillHeld(s, key, h, now) {
			done[key] = next
		}
	}
	return done
}

// auditHistory is a leader, and whatever becomes of VIPs, hosts and ports.
type auditHistory struct {
	*Allocator
	ctx     context.Context
	now     time.Time
	acked   model.Generation              // by all muxes
	reports map[string]*weirv1.HostStatus // by host
	heard   map[string]time.Time          // by host
	open    map[string]func()             // streams, by host; called they close

	audit       *storeAudit
	quarantined *quarantines
	walk        *walk
	ends        *ends
}

// ends are how many allocations were found in all histories.
type ends struct{ wrong, freed int }

// muxesOf answers for the muxes of a history.
type muxesOf struct {
	Hub
	*auditHistory
}

func (m muxesOf) AcknowledgedByMuxes() model.Generation { return m.acked }

func newAuditHistory(ctx context.Context, s *store.Store, ends *ends) *auditHistory {
	h := &auditHistory{
		ctx: ctx, now: time.Unix(100000, 0), reports: map[string]*weirv1.HostStatus{}, heard: map[string]time.Time{},
		open: map[string]func(){}, ends: ends,
	}
	now, log := func() time.Time { return h.now }, slog.New(slog.DiscardHandler)
	h.Allocator = New(Config{
		Store: s, Hub: muxesOf{auditHistory: h}, Events: events.New("m1", s, now, log), Now: now, Log: log,
		Reported: func(_ *store.State, n model.Node) (nodestatus.Status, *weirv1.NodeStatus) {
			return nodestatus.Status{Seen: h.heard[n.Name]}, &weirv1.NodeStatus{Host: h.reports[n.Name]}
		},
	}, NewMetrics())
	h.lead()
	return h
}

// lead begins a term.
func (h *auditHistory) lead() {
	h.audit, h.quarantined, h.walk = newStoreAudit(h.Allocator), newQuarantines(h.Allocator), &walk{Allocator: h.Allocator}
}

// write makes a change, and nothing that would follow from it.
func (h *auditHistory) write(t *rapid.T, change store.Change) {
	h.writeAs(t, func(*store.State) store.Change { return change })
}

func (h *auditHistory) writeAs(t *rapid.T, decide func(*store.State) store.Change) {
	if _, err := h.Store.Update(h.ctx, func(s *store.State) (store.Change, error) { return decide(s), nil }); err != nil {
		t.Fatal(err)
	}
}

// end makes the store empty.
func (h *auditHistory) end(t *rapid.T) {
	for _, closed := range h.open {
		closed()
	}
	h.writeAs(t, func(s *store.State) store.Change {
		return store.Change{
			DeleteVIPs: slices.Collect(s.VIPs.Keys()), DeletePorts: slices.Collect(s.Ports.Keys()),
			DeleteNodes: slices.Collect(s.Nodes.Keys()), Restored: &desired.Restored{},
		}
	})
}

var (
	historyAddresses = []netip.Addr{netip.MustParseAddr("203.0.113.20"), netip.MustParseAddr("203.0.113.21"), netip.MustParseAddr("2001:db8::20")}
	historyHosts     = []string{"host1", "host2", "host3"}
)

// Each VIP has few ports, so that workloads soon have those of others.
const (
	historyRanges    = 16
	historyWorkloads = 4
)

func drawKey(t *rapid.T) model.SNATKey {
	vip := rapid.SampledFrom(historyAddresses).Draw(t, "vip")
	if rapid.IntRange(0, 2).Draw(t, "is block") == 0 {
		return model.BlockKey(vip, rapid.SampledFrom(historyHosts).Draw(t, "host"))
	}
	return model.SNATKey{VIP: vip, Address: historyWorkload(vip, rapid.IntRange(1, historyWorkloads).Draw(t, "workload"))}
}

func historyWorkload(vip netip.Addr, i int) netip.Addr {
	if vip.Is6() {
		return netip.MustParseAddr(fmt.Sprintf("fd00::%d", i))
	}
	return netip.AddrFrom4([4]byte{10, 3, vip.As4()[3], byte(i)})
}

func drawRanges(t *rapid.T) []model.Range {
	first := rapid.IntRange(8192-historyRanges, 8191)
	return slices.Sorted(slices.Values(rapid.SliceOfNDistinct(rapid.Map(first, func(n int) model.Range { return model.Range(n) }), 0, 4, rapid.ID).Draw(t, "ranges")))
}

// drawVIP draws a VIP at an address that no other one has.
func (h *auditHistory) drawVIP(t *rapid.T) model.VIP {
	name, s := rapid.SampledFrom([]string{"one", "two"}).Draw(t, "name"), h.Store.State()
	address := rapid.SampledFrom(historyAddresses).Draw(t, "address")
	if other, there := s.VIPAt(address); there && other.Name != name {
		name = other.Name
	}
	vip := model.VIP{Name: name, Address: address}
	if rapid.IntRange(0, 5).Draw(t, "has source NAT") == 0 {
		return vip
	}
	snat := model.SNAT{
		MaxPorts: 8 * uint32(rapid.IntRange(1, 6).Draw(t, "most")), Preallocate: 8 * uint32(rapid.IntRange(0, 1).Draw(t, "preallocated")),
		Reserved: []model.PortRange{{First: 1, Last: 65535 - 8*historyRanges}},
	}.WithDefaults()
	for i := range historyWorkloads {
		if i == 0 || rapid.Bool().Draw(t, "listed") {
			snat.Workloads = append(snat.Workloads, model.SNATWorkload{
				Address: historyWorkload(address, i+1), Host: rapid.SampledFrom(historyHosts).Draw(t, "host"),
			})
		}
	}
	vip.SNAT = &snat
	return vip
}

// drawAllocation draws one that nobody was given by the rules. After a restore all that is in quarantine has one time.
func (h *auditHistory) drawAllocation(t *rapid.T) snatport.Allocation {
	a := snatport.Allocation{Host: rapid.SampledFrom(historyHosts).Draw(t, "host"), Ranges: drawRanges(t)}
	for range rapid.IntRange(0, 2).Draw(t, "groups") {
		ranges := slices.DeleteFunc(drawRanges(t), a.Has)
		since := h.now.Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "clock")) * time.Hour)
		if len(ranges) > 0 {
			a.Quarantined = append(a.Quarantined, snatport.Quarantined{Since: since, Ranges: ranges})
		}
	}
	return a
}

// compareAudit holds what the audit finds to what is wrong at all, and has it mended.
func (h *auditHistory) compareAudit(t *rapid.T, mends bool) {
	s, found := h.Store.State(), map[model.SNATKey]snatport.Allocation{}
	h.audit.note(s)
	for _, vip := range h.audit.nextWrong(s) {
		maps.Copy(found, h.wrongPorts(s, vip))
	}
	want := h.walk.wrong(s)
	if !maps.EqualFunc(found, want, snatport.Allocation.Equal) {
		t.Fatalf("the audit finds %v, and wrong are %v", found, want)
	}
	h.ends.wrong += len(want)
	if !mends {
		return
	}
	if err := h.audit.run(h.ctx); err != nil {
		t.Fatal(err)
	}
	s = h.Store.State()
	for key, is := range want {
		if !s.Ports.At(key).Equal(is) {
			t.Fatalf("%s was to have %v, and has %v", key, is, s.Ports.At(key))
		}
	}
}

// compareQuarantines holds what is found to have rested to what has rested at all, and has it freed.
func (h *auditHistory) compareQuarantines(t *rapid.T, frees bool) {
	s := h.Store.State()
	h.quarantined.observe(s, h.now)
	h.walk.observe(s, h.now)
	change, found := h.quarantined.free(s, h.quarantined.expired(s, h.now), h.now), map[model.SNATKey]snatport.Allocation{}
	maps.Copy(found, change.Ports)
	for _, key := range change.DeletePorts {
		found[key] = snatport.Allocation{Host: s.Ports.At(key).Host}
	}
	want := h.walk.expired(s, h.now)
	if !maps.EqualFunc(found, want, snatport.Allocation.Equal) {
		t.Fatalf("found to have rested is %v, and %v has", found, want)
	}
	if !maps.Equal(h.quarantined.seen, h.walk.seen) || h.quarantined.byTime.Len() != len(h.walk.seen) {
		t.Fatalf("known are %v, by time %d, and in quarantine are %v", h.quarantined.seen, h.quarantined.byTime.Len(), h.walk.seen)
	}
	h.ends.freed += len(want)
	if !frees {
		return
	}
	if err := h.quarantined.run(h.ctx); err != nil {
		t.Fatal(err)
	}
	for key, is := range want {
		if left := h.Store.State().Ports.At(key); !slices.Equal(left.Ranges, is.Ranges) || len(left.Quarantined) != len(is.Quarantined) {
			t.Fatalf("%s was to have %v, and has %v", key, is, left)
		}
	}
}

// changes are what becomes of VIPs and ports.
func (h *auditHistory) changes() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"write a VIP": func(t *rapid.T) {
			vip := h.drawVIP(t)
			h.writeAs(t, func(s *store.State) store.Change {
				change := store.Change{VIPs: []model.VIP{vip}}
				if next := s.Clone(); rapid.Bool().Draw(t, "with its ports") {
					next.PutVIP(vip)
					change.Ports = next.ChangedPorts(vip.Address, h.now)
				}
				return change
			})
		},
		"delete a VIP": func(t *rapid.T) {
			h.write(t, store.Change{DeleteVIPs: []string{rapid.SampledFrom([]string{"one", "two"}).Draw(t, "name")}})
		},
		"write an allocation": func(t *rapid.T) {
			h.write(t, store.Change{Ports: map[model.SNATKey]snatport.Allocation{drawKey(t): h.drawAllocation(t)}})
		},
		"delete an allocation": func(t *rapid.T) { h.write(t, store.Change{DeletePorts: []model.SNATKey{drawKey(t)}}) },
		"grant": func(t *rapid.T) {
			n, first := rapid.IntRange(1, 3).Draw(t, "n"), rapid.IntRange(0, 9).Draw(t, "first")
			h.writeAs(t, func(s *store.State) store.Change {
				change, next := store.Change{Ports: map[model.SNATKey]snatport.Allocation{}}, s.Clone()
				for key := range s.Ports.Clients() {
					if first--; first < 0 && (!key.IsBlock() || desired.HasPortBlock(s.State, key)) {
						change.Ports[key], _ = next.AllocatePorts(key, n, 0)
						next.Ports.Set(key, change.Ports[key])
					}
				}
				return change
			})
		},
		"release": func(t *rapid.T) {
			key, ranges := drawKey(t), drawRanges(t)
			h.writeAs(t, func(s *store.State) store.Change {
				if !s.Ports.Has(key) {
					return store.Change{}
				}
				return store.Change{Ports: map[model.SNATKey]snatport.Allocation{key: s.Ports.At(key).Release(ranges, h.now)}}
			})
		},
	}
}

// events are what becomes of all else, and the audits.
func (h *auditHistory) events() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"write a host": func(t *rapid.T) {
			name := rapid.SampledFrom(historyHosts).Draw(t, "host")
			h.writeAs(t, func(s *store.State) store.Change {
				return store.Change{Nodes: []model.Node{{Name: name, Role: model.RoleHost, PortBlocks: !s.Nodes.At(name).PortBlocks}}}
			})
		},
		"delete a host": func(t *rapid.T) {
			h.write(t, store.Change{DeleteNodes: []string{rapid.SampledFrom(historyHosts).Draw(t, "host")}})
		},
		"report": func(t *rapid.T) {
			name, report := rapid.SampledFrom(historyHosts).Draw(t, "host"), &weirv1.HostStatus{}
			for range rapid.IntRange(0, 3).Draw(t, "uses") {
				key := drawKey(t)
				report.Snat = append(report.Snat, &weirv1.SNATUse{
					Vip: key.VIP.String(), Address: key.Address.String(), Ranges: rapid.Uint32Range(0, 3).Draw(t, "held"),
				})
			}
			h.reports[name], h.heard[name] = report, h.now
		},
		"connect": func(t *rapid.T) {
			name := rapid.SampledFrom(historyHosts).Draw(t, "host")
			if closed := h.open[name]; closed != nil {
				closed()
				delete(h.open, name)
			} else {
				h.open[name] = h.Store.Presence.Open(name)
			}
		},
		"restore": func(t *rapid.T) {
			step := desired.Restored{At: h.Store.State().Generation * model.Generation(rapid.IntRange(0, 1).Draw(t, "restored"))}
			step.Settled = step.At != 0 && rapid.Bool().Draw(t, "settled")
			h.write(t, store.Change{Restored: &step})
		},
		"acknowledge": func(*rapid.T) { h.acked = h.Store.State().Generation },
		"pass time": func(t *rapid.T) {
			h.now = h.now.Add(time.Duration(rapid.IntRange(1, 200).Draw(t, "seconds")) * time.Second)
		},
		"lead anew":       func(*rapid.T) { h.lead() },
		"audit":           func(t *rapid.T) { h.compareAudit(t, true) },
		"end quarantines": func(t *rapid.T) { h.compareQuarantines(t, true) },
		"": func(t *rapid.T) {
			if rapid.Bool().Draw(t, "looks") {
				h.compareAudit(t, false)
				h.compareQuarantines(t, false)
			}
		},
	}
}

// Whatever becomes of VIPs, hosts, ports, leaders and time: the audits, which look at what changed and at what is due, find
// what one finds that looks at everything.
func TestAuditsFindWhatAWholeWalkFinds(t *testing.T) {
	s, found := teststore.Open(t), ends{}
	rapid.Check(t, func(rt *rapid.T) {
		h := newAuditHistory(t.Context(), s, &found)
		defer h.end(rt)
		for _, name := range historyHosts {
			h.write(rt, store.Change{Nodes: []model.Node{{Name: name, Role: model.RoleHost, PortBlocks: true}}})
		}
		h.write(rt, store.Change{VIPs: []model.VIP{h.drawVIP(rt)}})
		actions := h.changes()
		maps.Copy(actions, h.events())
		rt.Repeat(actions)
		h.compareAudit(rt, true)
		h.compareQuarantines(rt, true)
	})
	if found.wrong == 0 || found.freed == 0 {
		t.Errorf("%d allocations were wrong and %d had rested: the histories are too kind", found.wrong, found.freed)
	}
	t.Logf("%+v", found)
}
