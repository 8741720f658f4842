package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/neighbor"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/tokenbucket"
	"github.com/weirlb/weir/internal/wake"
)

// tick is how often muxes are looked at that fell silent.
const tick = 25 * time.Millisecond

// readTimeout bounds a read of the store: one that takes longer gives no lease.
const readTimeout = neighbor.Lease / 2

// A mux that comes and goes is noted notesBurst times at once, and then every noteEvery: a note is a write, and has VIPs
// that the mux would own wait anew. So three managers together leave time to take them over between two notes.
const (
	noteEvery  = 5 * time.Second
	notesBurst = 3
)

// Presence notes which muxes can answer, for all managers.
type Presence interface {
	SetAble(mux neighbor.Mux)
	SetUnable(mux string)
	ReadAble(ctx context.Context) (muxes []neighbor.Mux, puts []neighbor.Put, err error)
	IsExcluded(node string) bool
}

// Leases grants muxes leases.
type Leases struct {
	watch    func() (*store.State, <-chan struct{})
	presence Presence
	now      func() time.Time
	log      *slog.Logger
	wake     wake.Signal // a mux is new

	mu     sync.Mutex
	notes  tokenbucket.Buckets // by mux
	ledger neighbor.Ledger
	active map[string]active // muxes that renew their lease here
	macs   []string          // of muxes with neighbor prefixes, in order
	filled model.Generation  // 0: not yet
}

// active is a mux that renews its lease.
type active struct {
	mux  neighbor.Mux
	seen time.Time // its last request
	lost bool      // the store was read without its note
}

// New is of a store. now also goes while the machine sleeps: what was read of the store before ends meanwhile.
func New(watch func() (*store.State, <-chan struct{}), presence Presence, now func() time.Time, log *slog.Logger) *Leases {
	return &Leases{watch: watch, presence: presence, now: now, log: log, wake: wake.New(), active: map[string]active{}}
}

// Run reads the store until ctx ends.
func (l *Leases) Run(ctx context.Context) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	read := time.Time{}
	for {
		s, changed := l.watch()
		l.fill(s)
		l.dropSilent()
		if l.isDue(s, l.now().Sub(read)) {
			read = l.now()
			l.read(ctx)
		}
		idle := ticker.C
		if !l.anyActive() && s.Neighbors.Len() == 0 {
			idle = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-l.wake:
		case <-idle:
		}
	}
}

func (l *Leases) anyActive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.active) > 0
}

// isDue says whether the store is to be read: at each interval, and once it has other muxes.
func (l *Leases) isDue(s *store.State, since time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.active) == 0 && s.Neighbors.Len() == 0 {
		return false
	}
	if since >= neighbor.Interval {
		return true
	}
	known := map[string]bool{}
	for _, m := range l.ledger.Muxes() {
		known[m.Name] = true
	}
	if len(known) != s.Neighbors.Len() {
		return true
	}
	for name := range s.Neighbors.Keys() {
		if !known[name] {
			return true
		}
	}
	return false
}

// fill takes over the VIPs and the muxes of a new generation.
func (l *Leases) fill(s *store.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.Generation == l.filled {
		return
	}
	l.filled = s.Generation
	var prefixes []netip.Prefix // muxes have them in common
	l.macs = nil
	for node := range s.MuxNodes() {
		if len(node.NeighborPrefixes) > 0 {
			for _, p := range node.NeighborPrefixes {
				if !slices.Contains(prefixes, p) {
					prefixes = append(prefixes, p)
				}
			}
			l.macs = append(l.macs, node.MAC)
		}
	}
	slices.Sort(l.macs)
	var vips []netip.Addr
	for _, prefix := range prefixes { // most clusters have none: then nothing is looked at for a change
		for u := range s.Addresses.In(prefix) {
			if u.As == desired.AsVIP {
				vips = append(vips, u.Address)
			}
		}
	}
	slices.SortFunc(vips, netip.Addr.Compare)
	l.ledger.SetVIPs(slices.Compact(vips), l.now())
}

// dropSilent takes back the notes of muxes that do not renew their leases.
func (l *Leases) dropSilent() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, a := range l.active {
		if l.now().Sub(a.seen) > neighbor.Silence || l.presence.IsExcluded(name) {
			l.log.Info("a mux answers ARP and NDP no more: its VIPs go to others", "node", name)
			l.drop(name)
		}
	}
}

func (l *Leases) drop(mux string) {
	delete(l.active, mux)
	l.presence.SetUnable(mux)
}

// read confirms by the store who can answer.
func (l *Leases) read(ctx context.Context) {
	asked := l.now()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	muxes, puts, err := l.presence.ReadAble(ctx)
	if err != nil {
		l.log.Debug("no leases to answer ARP and NDP are granted", "err", err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ledger.Confirm(muxes, puts, asked, l.now())
	for name, a := range l.active {
		there := slices.ContainsFunc(muxes, func(m neighbor.Mux) bool { return m.Name == name })
		again := !there && a.lost && l.mayNote(name) // another manager has noted it meanwhile, and taken that back
		if again {
			l.presence.SetAble(a.mux)
		}
		a.lost = !there && !again
		l.active[name] = a
	}
}

// mayNote says whether a mux may be noted now, and counts it.
func (l *Leases) mayNote(mux string) bool {
	return l.notes.Take(mux, 1/noteEvery.Seconds(), notesBurst, 1, l.now()) == 0
}

// RenewNeighbors gives a mux a lease to answer ARP and NDP for its VIPs.
func (l *Leases) RenewNeighbors(_ context.Context, r *weirv1.RenewNeighborsRequest) (*weirv1.RenewNeighborsResponse, error) {
	s, _ := l.watch()
	node, there := s.Nodes.Get(r.GetName())
	if !there || node.Role != model.RoleMux || len(node.NeighborPrefixes) == 0 {
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("mux %q is not registered with neighbor prefixes", r.GetName()))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	mux := neighbor.Mux{Name: node.Name, Prefixes: node.NeighborPrefixes}
	able := r.GetReady() && !s.Excluded.Has(node.Name) && !l.presence.IsExcluded(node.Name)
	switch before, was := l.active[node.Name]; {
	case !able:
		if was {
			l.drop(node.Name)
		}
	case (!was || !slices.Equal(before.mux.Prefixes, mux.Prefixes)) && l.mayNote(node.Name):
		l.log.Info("a mux can answer ARP and NDP", "node", node.Name)
		l.active[node.Name] = active{mux: mux, seen: l.now()}
		l.presence.SetAble(mux)
		l.wake.Set()
	case was:
		before.seen = l.now()
		l.active[node.Name] = before
	}
	grant, ok := l.ledger.Grant(node.Name, l.now())
	if !ok {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("this manager has not reached the store lately: it grants no lease"))
	}
	if able && !slices.ContainsFunc(l.ledger.Muxes(), func(m neighbor.Mux) bool { return m.Name == node.Name }) {
		// A lease of no VIP would end the one that it has. Aborted: the mux asks this manager again.
		return nil, connect.NewError(connect.CodeAborted, fmt.Errorf("the store does not have yet that mux %s can answer: ask again", node.Name))
	}
	response := &weirv1.RenewNeighborsResponse{Lease: durationpb.New(grant.Lease), Digest: neighbor.With(grant.Digest, l.macs)}
	if response.Digest != 0 && response.Digest == r.GetDigest() {
		return response, nil
	}
	response.Muxes = l.macs
	for _, w := range grant.VIPs {
		response.Vips = append(response.Vips, &weirv1.NeighborVIP{Vip: w.VIP.String(), Wait: durationpb.New(w.Wait)})
	}
	return response, nil
}
