// Package muxrate makes rates of what muxes report: of every interval a sample of the muxes of this manager, and the samples
// of the other managers beside it.
//
//	Reports ─▶ fold, every Interval ─▶ own ─▶ the other managers
//	                                    └───▶ all ─▶ who watches
//	other managers: WatchRates{own} ────────▶ all
//
// Invariants:
//   - every manager has the samples of all muxes, so one that is lost takes none with it;
//   - a watcher is told of an interval when all managers that told of the one before have told of it, or after a moment;
//   - nothing queues for a watcher: it reads the ring at its own pace, and skips what was dropped there.
package muxrate

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rate"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
	"github.com/weirlb/weir/internal/wire"
)

const (
	// DefaultInterval is the time that a sample is of.
	DefaultInterval = 5 * time.Second
	// longest is how many intervals two reports may be apart: what grew over a longer time is the rate of no interval.
	longest = 4
)

// Config says what a Meter works with.
type Config struct {
	Name     string // of this manager
	Store    *store.Store
	Latest   func(node string, stored nodestatus.Status) (nodestatus.Status, *weirv1.NodeStatus, bool) // that a node reported here, if that is the newest
	Peer     func(address string) (*rpc.Client, error)                                                 // of another manager
	Interval time.Duration
	Now      func() time.Time
	Log      *slog.Logger
}

// Meter has the rates of the last minutes.
type Meter struct {
	Config

	base map[string]report // of the interval before, by mux; Run's alone

	mu       sync.Mutex
	own, all rate.Ring
	newest   map[string]time.Time // sample of each manager that is followed, and of this one
	taken    map[string]time.Time // likewise, of those too that were followed once
	released time.Time            // sample that watchers were told of
	more     chan struct{}        // closed when there is another one
}

// report is what a mux reported.
type report struct {
	seen time.Time
	mux  *weirv1.MuxStatus
}

// New makes a Meter, without samples.
func New(c Config) *Meter {
	return &Meter{Config: c, base: map[string]report{}, newest: map[string]time.Time{}, taken: map[string]time.Time{}, more: make(chan struct{})}
}

// Run makes a sample of each interval, and follows the other managers, until ctx ends.
func (m *Meter) Run(ctx context.Context) error {
	var following sync.WaitGroup
	defer following.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	following.Go(func() { m.followOthers(ctx) })
	var last time.Time
	for {
		at := m.Now().Truncate(m.Interval).Add(m.Interval)
		if !m.wait(ctx, at.Sub(m.Now())) {
			return nil
		}
		if at.After(last) {
			m.put(m.Name, m.fold(at))
			last = at
		}
		// The others make theirs at the same time, by clocks that are not quite the same.
		if !m.wait(ctx, m.Interval*2/5) {
			return nil
		}
		m.release(at)
	}
}

func (m *Meter) wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(d, time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// fold makes a sample of the muxes that report to this manager: their growth since the sample before.
func (m *Meter) fold(at time.Time) *rate.Sample {
	s := m.Store.State()
	f := folding{state: s, muxes: map[string]rate.Mux{}, verdicts: map[string]rate.Rate{}, endpoints: map[rate.Key]rate.Rate{}, keys: map[netip.Addr]rate.Key{}}
	base := map[string]report{}
	for node := range s.MuxNodes() {
		said, detail, here := m.Latest(node.Name, s.Status.At(node.Name))
		if !here || detail.GetMux() == nil {
			continue
		}
		now, before := report{said.Seen, detail.GetMux()}, m.base[node.Name]
		base[node.Name] = now
		if over := now.seen.Sub(before.seen); before.mux != nil && over > 0 && over <= longest*m.Interval {
			f.add(node.Name, before.mux, now.mux, over)
		}
	}
	m.base = base
	return rate.Fold(at, f.muxes, f.verdicts, f.endpoints)
}

// folding sums up the rates of muxes.
type folding struct {
	state     *store.State
	muxes     map[string]rate.Mux
	verdicts  map[string]rate.Rate
	endpoints map[rate.Key]rate.Rate
	keys      map[netip.Addr]rate.Key // of VIPs, without their endpoints
}

func (f *folding) add(name string, before, now *weirv1.MuxStatus, over time.Duration) {
	verdicts := rate.Growth(verdictsOf(before), verdictsOf(now), over)
	f.muxes[name] = rate.MuxOf(verdicts)
	for verdict, r := range verdicts {
		if r.Packets > 0 {
			f.verdicts[verdict] = f.verdicts[verdict].Add(r)
		}
	}
	for at, r := range rate.Growth(endpointsOf(before), endpointsOf(now), over) {
		if r.Packets == 0 {
			continue
		}
		if key, there := f.key(at); there {
			f.endpoints[key] = f.endpoints[key].Add(r)
		}
	}
}

// verdictsOf are the counters of verdicts, whose names are those of an enum: nothing else is believed.
func verdictsOf(mux *weirv1.MuxStatus) map[string]rate.Count {
	counts := make(map[string]rate.Count, len(mux.GetVerdicts()))
	for _, c := range mux.GetVerdicts() {
		if strings.Trim(c.GetName(), "abcdefghijklmnopqrstuvwxyz0123456789_") == "" {
			counts[c.GetName()] = rate.Count{Packets: c.GetPackets(), Bytes: c.GetBytes()}
		}
	}
	return counts
}

// endpoint is one as a mux reports it.
type endpoint struct {
	vip, protocol string
	port          uint32
}

func endpointsOf(mux *weirv1.MuxStatus) map[endpoint]rate.Count {
	counts := make(map[endpoint]rate.Count, len(mux.GetEndpoints()))
	for _, c := range mux.GetEndpoints() {
		e := c.GetEndpoint()
		counts[endpoint{e.GetVip(), e.GetProtocol(), e.GetPort()}] = rate.Count{Packets: c.GetPackets(), Bytes: c.GetBytes()}
	}
	return counts
}

// key says whose an endpoint is. What is no VIP's is left out, whatever a mux says.
func (f *folding) key(e endpoint) (key rate.Key, there bool) {
	at, err := wire.EndpointKeyFromProto(&weirv1.EndpointKey{Vip: e.vip, Protocol: e.protocol, Port: e.port})
	if err != nil {
		return key, false
	}
	if key, there = f.keys[at.VIP]; !there {
		vip, is := f.state.VIPAt(at.VIP)
		if !is {
			return key, false
		}
		key = rate.Key{VIP: vip.Name, Tenant: vip.Tenant}
		f.keys[at.VIP] = key
	}
	key.Endpoint = at
	return key, true
}

// put takes a sample of a manager, once.
func (m *Meter) put(manager string, s *rate.Sample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !s.At.After(m.taken[manager]) {
		return
	}
	if manager == m.Name {
		m.own.Put(s)
	}
	m.all.Put(s)
	m.newest[manager], m.taken[manager] = s.At, s.At
	if own := m.newest[m.Name]; m.complete(own) && own.After(m.released) {
		m.released = own
	}
	m.tell()
}

// complete says whether all managers that told of the interval before have told of this one.
func (m *Meter) complete(at time.Time) bool {
	for _, newest := range m.newest {
		if newest.Before(at) && !newest.Before(at.Add(-m.Interval)) {
			return false
		}
	}
	return true
}

// release has watchers told of an interval, whoever has not told of it yet.
func (m *Meter) release(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at.After(m.released) {
		m.released = at
		m.tell()
	}
}

// tell wakes those that wait for samples.
func (m *Meter) tell() {
	close(m.more)
	m.more = make(chan struct{})
}

// forget drops a manager that is followed no more: nobody waits for it.
func (m *Meter) forget(manager string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.newest, manager)
}

// Since are the samples that ended after a time, of the muxes of this manager alone or of all. The channel is closed when
// there may be more.
func (m *Meter) Since(own bool, after time.Time) (samples []*rate.Sample, more <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if own {
		return m.own.Since(after, m.newest[m.Name]), m.more
	}
	return m.all.Since(after, m.released), m.more
}
