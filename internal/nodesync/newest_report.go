package nodesync

import (
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
	"github.com/weirlb/weir/internal/wake"
)

// Reports are the newest reports of nodes: of those that report to this manager, and of those that report to others, which
// tell it. The store has the same, with counters that may be as old as RefreshInterval.
type Reports struct {
	Switches wake.Signal // set when a switch runs another generation
	log      *slog.Logger

	mu     sync.Mutex
	newest map[string]report       // told here by the nodes
	others map[string]report       // told by other managers
	stored map[string]storedDetail // of nodes that report elsewhere
	feed   reportFeed
}

// storedDetail is what the store has of a report: it is read once, and not for each call of each viewer.
type storedDetail struct {
	text   *byte // where the text begins, which is never written to
	detail *weirv1.NodeStatus
}

// NewReports makes them, without a report.
func NewReports(log *slog.Logger) *Reports {
	return &Reports{
		Switches: wake.New(), log: log, newest: map[string]report{}, others: map[string]report{}, stored: map[string]storedDetail{},
		feed: newReportFeed(),
	}
}

type report struct {
	nodestatus.Status           // Seen is by the clock of the manager that took it, SessionCount what the store was given
	at                time.Time // when it was taken, by this manager's clock
	detail            *weirv1.NodeStatus
	bare              *weirv1.NodeStatus // detail without what is no news: counters, neighbours of ports
	told              time.Time          // when a report of the node last became due for the other managers
	stored            time.Time          // when the store was given a report of the node last
	unstored          bool               // the store did not take it
	basis             time.Time          // Seen of what the store had when another manager told this
}

// here returns what a node reported to this manager last, and whether neither the store nor another manager has a newer one.
func (r *Reports) here(node string, stored nodestatus.Status) (report, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ownNewest(node, stored)
}

// ownNewest is here. The lock is held.
func (r *Reports) ownNewest(node string, stored nodestatus.Status) (report, bool) {
	newest, ok := r.newest[node]
	return newest, ok && !newest.Seen.Before(stored.Seen) && !r.others[node].at.After(newest.at)
}

// raise has what a node reported here last be of a generation that it runs since, and returns it; false: it is no newer one,
// or the report is not here.
func (r *Reports) raise(node string, stored nodestatus.Status, generation model.Generation, now time.Time) (report, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	newest, ok := r.ownNewest(node, stored)
	if !ok || generation <= newest.Generation {
		return newest, false
	}
	newest.Generation, newest.Seen, newest.at = generation, now, now
	r.newest[node] = newest
	return newest, true
}

// get returns the newest report that is known by other ways than the store, and whether it is at least as new as what the
// store has. What another manager told counts while the store has a status of the node: else the node was deleted since.
func (r *Reports) get(node string, stored nodestatus.Status) (report, bool) {
	if newest, ok := r.here(node, stored); ok {
		return newest, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	newest, ok := r.others[node]
	// Clocks of managers differ: what the store got after it was told is newer, unless it is the same or was there before.
	unchanged := stored.Seen.Equal(newest.basis) || stored.Seen.Equal(newest.Seen)
	return newest, ok && !stored.Seen.IsZero() && unchanged && !newest.Seen.Before(stored.Seen)
}

// LatestHere returns what a node last reported to this manager, if nobody has a newer report.
func (r *Reports) LatestHere(node string, stored nodestatus.Status) (nodestatus.Status, *weirv1.NodeStatus, bool) {
	newest, here := r.here(node, stored)
	return newest.Status, newest.detail, here
}

// Latest returns what a node last reported, to this manager or to one that told it, if that is at least as new as stored.
// Seen is by this manager's clock.
func (r *Reports) Latest(node string, stored nodestatus.Status) (nodestatus.Status, *weirv1.NodeStatus, bool) {
	newest, known := r.get(node, stored)
	newest.Seen = newest.at
	return newest.Status, newest.detail, known
}

// LatestSeen is Latest, without what the node runs.
func (r *Reports) LatestSeen(node string, stored nodestatus.Status) (seen time.Time, detail *weirv1.NodeStatus, known bool) {
	newest, known := r.get(node, stored)
	return newest.at, newest.detail, known
}

// setReport keeps what a node reported here. The other managers are told of what is due.
func (r *Reports) setReport(node string, newest report, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if newest.detail.GetSwitch() != nil && newest.Generation != r.newest[node].Generation {
		r.Switches.Set()
	}
	if before := r.newest[node]; newest.stored.Equal(before.stored) { // the store does not get it
		newest.unstored = before.unstored
	}
	r.newest[node] = newest
	if due {
		r.feed.add(node)
	}
}

// setUnstored notes that the store did not take what a node reported: the next report is news.
func (r *Reports) setUnstored(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if newest, there := r.newest[node]; there {
		newest.unstored = true
		r.newest[node] = newest
	}
}

// Forget drops what a node reported.
func (r *Reports) Forget(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.newest, node)
	delete(r.others, node)
	delete(r.stored, node)
	r.feed.remove(node)
}

// Newest is the newest report of a node, to this manager or to another one, which told it or stored it.
func (r *Reports) Newest(s *store.State, node model.Node) (nodestatus.Status, *weirv1.NodeStatus) {
	stored := s.Status.At(node.Name)
	if newest, ok := r.get(node.Name, stored); ok {
		newest.Seen = newest.at
		if node.Role == model.RoleMux {
			newest.Generation = stored.Generation // it may report to another manager by now
		}
		return newest.Status, newest.detail
	}
	return stored, r.read(node.Name, stored.Detail, s.Nodes.Len())
}

// read reads what the store has of a node, of so many.
func (r *Reports) read(node string, text []byte, nodes int) *weirv1.NodeStatus {
	if len(text) == 0 {
		return &weirv1.NodeStatus{}
	}
	r.mu.Lock()
	known := r.stored[node]
	r.mu.Unlock()
	if known.text == &text[0] {
		return known.detail
	}
	detail := &weirv1.NodeStatus{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, detail); err != nil {
		r.log.Warn("can't read the status of a node", "node", node, "err", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.stored) > 2*nodes { // most are gone
		clear(r.stored)
	}
	r.stored[node] = storedDetail{&text[0], detail}
	return detail
}

// maxDetail bounds what the store and other managers have of a report besides counters of endpoints, in bytes.
const maxDetail = 64 << 10

// drops take from a switch's report what nobody decides on, the least useful first.
var drops = []func(*weirv1.SwitchStatus){
	func(s *weirv1.SwitchStatus) { ofPorts(s, func(p *weirv1.SwitchPort) { p.NeighbourPort = "" }) },
	func(s *weirv1.SwitchStatus) { ofPorts(s, func(p *weirv1.SwitchPort) { p.Neighbour = "" }) },
	func(s *weirv1.SwitchStatus) {
		if s != nil {
			s.Warnings = nil
		}
	},
	func(s *weirv1.SwitchStatus) {
		for _, r := range s.GetRefused() {
			r.Reason = ""
		}
	},
}

func ofPorts(s *weirv1.SwitchStatus, do func(*weirv1.SwitchPort)) {
	for _, p := range s.GetPorts() {
		do(p)
	}
}

// forStore encodes the report for the store: all of it, or, if that is large, the part that other managers decide on. Of a
// switch's ports that is who is at their other ends, while there is room for it, whether they are up, and how often they changed.
func (r report) forStore() ([]byte, error) {
	if proto.Size(r.detail) <= maxDetail { // the text is longer: a mux with a counter for each of many endpoints has megabytes
		if text, err := protojson.Marshal(r.detail); err != nil || len(text) <= maxDetail {
			return text, err
		}
	}
	bare := r.withoutMost()
	for _, drop := range drops {
		if text, err := protojson.Marshal(bare); err != nil || len(text) <= maxDetail {
			return text, err
		}
		drop(bare.GetSwitch())
	}
	return protojson.Marshal(bare)
}

// withoutMost is the part of a large report that other managers decide on.
func (r report) withoutMost() *weirv1.NodeStatus {
	bare := proto.CloneOf(r.bare)
	if host := bare.GetHost(); host != nil {
		host.Snat, host.Multipath = r.detail.GetHost().GetSnat(), r.detail.GetHost().GetMultipath()
	}
	if mux := bare.GetMux(); mux != nil {
		mux.LastPacket = r.detail.GetMux().GetLastPacket()
	}
	for i, p := range r.detail.GetSwitch().GetPorts() {
		kept := bare.GetSwitch().GetPorts()[i]
		kept.Neighbour, kept.NeighbourPort, kept.Changes = p.GetNeighbour(), p.GetNeighbourPort(), p.GetChanges()
	}
	return bare
}

// equals says whether two reports differ in counters, generations and neighbours of ports at most.
func (r report) equals(other report) bool {
	return r.Rejected == other.Rejected && r.Reason == other.Reason && proto.Equal(r.bare, other.bare)
}

// withoutCounters is a copy of a report's detail, which nobody else knows yet. It has no neighbours of ports either: they say
// what they like as often as they like, and would have each of it stored at once.
func withoutCounters(detail *weirv1.NodeStatus) *weirv1.NodeStatus {
	if mux := detail.GetMux(); mux != nil {
		verdicts, endpoints, snat, flows, sessions := mux.Verdicts, mux.Endpoints, mux.Snat, mux.Flows, mux.NatSessions
		packet := mux.LastPacket
		mux.Verdicts, mux.Endpoints, mux.Snat, mux.Flows, mux.NatSessions = nil, nil, nil, nil, nil // many: they are not copied
		mux.LastPacket = nil
		defer func() {
			mux.Verdicts, mux.Endpoints, mux.Snat, mux.Flows, mux.NatSessions = verdicts, endpoints, snat, flows, sessions
			mux.LastPacket = packet
		}()
	}
	if host := detail.GetHost(); host != nil {
		verdicts, sessions, snat, networks := host.Verdicts, host.Sessions, host.Snat, host.Networks
		tenants, tenantSNAT, multipath := host.TenantSessions, host.TenantSnat, host.Multipath
		host.Verdicts, host.Sessions, host.Snat, host.Networks, host.TenantSessions, host.TenantSnat = nil, 0, nil, nil, nil, nil
		host.Multipath = nil
		defer func() {
			host.Verdicts, host.Sessions, host.Snat, host.Networks = verdicts, sessions, snat, networks
			host.TenantSessions, host.TenantSnat, host.Multipath = tenants, tenantSNAT, multipath
		}()
	}
	if sw := detail.GetSwitch(); sw != nil {
		ports := sw.Ports
		sw.Ports = make([]*weirv1.SwitchPort, len(ports))
		for i, p := range ports {
			sw.Ports[i] = &weirv1.SwitchPort{Name: p.GetName(), Up: p.GetUp(), MbitPerS: p.GetMbitPerS()}
		}
		defer func() { sw.Ports = ports }()
	}
	return proto.CloneOf(detail)
}
