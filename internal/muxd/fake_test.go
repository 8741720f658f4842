package muxd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/bgp"
	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/overload"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/wire"
)

// journal notes what the daemon does to its parts, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// take returns the lines since the last take.
func (j *journal) take() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	text := strings.Join(j.lines, "\n")
	j.lines = nil
	return text
}

// fakeDatapath holds tables without a kernel.
type fakeDatapath struct {
	*journal
	mu         sync.Mutex
	endpoints  map[model.EndpointKey]model.MuxEndpoint
	settings   mux.Settings
	generation model.Generation
	snat       map[model.SNATKey]model.MuxSNAT
	full       error // of Update
	syn        map[model.EndpointKey]mux.SYNState
	syns       mux.SYNCounter
	mode       string // empty: native
	muxes      int
	lists      map[string]model.PrefixSet
	room       int // for lists
}

func (d *fakeDatapath) Mode() string                          { return cmp.Or(d.mode, "native") }
func (d *fakeDatapath) Settings() (mux.Settings, error)       { return d.settings, nil }
func (d *fakeDatapath) Generation() (model.Generation, error) { return d.generation, nil }

func (d *fakeDatapath) SetSettings(p mux.Settings) error {
	d.note("settings key %x, sources %s %s, mtu %d", p.HashKey[0], p.Source4, p.Source6, p.MTU)
	d.settings = p
	return nil
}

func (d *fakeDatapath) SetPoolMembers(string, []model.PoolMember) error { return nil }

func (d *fakeDatapath) SetMuxes(n int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.muxes = n
	return nil
}

func (d *fakeDatapath) RefusedCounters() (map[netip.Addr]model.Counter, error) {
	return map[netip.Addr]model.Counter{key(10).VIP: {Packets: 2, Bytes: 120}}, nil
}

func (d *fakeDatapath) OfferedLoad() (map[netip.Addr]mux.OfferedLoad, map[string]int, error) {
	return nil, nil, nil
}

func (d *fakeDatapath) SetShares(map[netip.Addr]overload.Cut) error { return nil }

func (d *fakeDatapath) Sources() (map[netip.Addr][]overload.Source, error) { return nil, nil }

func (d *fakeDatapath) SetGeneration(g model.Generation) error {
	d.note("generation %d", g)
	d.generation = g
	return nil
}

func (d *fakeDatapath) Update(u mux.Update) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if u.Snapshot {
		d.note("replace by %d", len(u.Endpoints))
	} else {
		d.note("apply +%d -%d", len(u.Endpoints), len(u.Removed))
	}
	if len(u.SNAT)+len(u.SNATRemoved) > 0 {
		d.note("workloads +%d -%d", len(u.SNAT), len(u.SNATRemoved))
	}
	if d.full != nil {
		return d.full
	}
	if u.Snapshot {
		clear(d.endpoints)
		clear(d.lists)
		d.snat = nil
	}
	for _, list := range u.Lists {
		d.note("list %s has %d", list.Name, list.Prefixes.Len())
		d.lists[list.Name] = list.Prefixes
	}
	for _, name := range u.ListsRemoved {
		d.note("list %s goes", name)
		delete(d.lists, name)
	}
	for _, key := range u.Removed {
		delete(d.endpoints, key)
	}
	for _, e := range u.Endpoints {
		d.endpoints[e.Key] = e
	}
	if d.snat == nil {
		d.snat = map[model.SNATKey]model.MuxSNAT{}
	}
	for _, key := range u.SNATRemoved {
		delete(d.snat, key)
	}
	for _, s := range u.SNAT {
		d.snat[s.Key] = s
	}
	return nil
}

func (d *fakeDatapath) PrefixList(name string) model.PrefixSet {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lists[name]
}

func (d *fakeDatapath) FreeSourceRows() int { return d.room }

func (d *fakeDatapath) VIPs() ([]netip.Addr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	vips := map[netip.Addr]bool{}
	for key := range d.endpoints {
		vips[key.VIP] = true
	}
	for key := range d.snat {
		vips[key.VIP] = true
	}
	return slices.SortedFunc(maps.Keys(vips), netip.Addr.Compare), nil
}

func (d *fakeDatapath) SNATDigest() (ranges int, digest uint64) { return 2, 7 }

func (d *fakeDatapath) SNATCounters() (map[netip.Addr]model.Counter, error) {
	return map[netip.Addr]model.Counter{key(10).VIP: {Packets: 5, Bytes: 300}}, nil
}

func (d *fakeDatapath) Endpoints() ([]model.EndpointKey, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(maps.Keys(d.endpoints), model.EndpointKey.Compare), nil
}

func (d *fakeDatapath) Tunnels() []netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	tunnels := map[netip.Addr]bool{}
	for _, e := range d.endpoints {
		for _, b := range e.Backends {
			tunnels[b.Tunnel] = true
		}
	}
	return slices.SortedFunc(maps.Keys(tunnels), netip.Addr.Compare)
}

func (d *fakeDatapath) SetNextHops(hops map[netip.Addr]model.NextHop) error {
	d.note("next hops of %v", slices.SortedFunc(maps.Keys(hops), netip.Addr.Compare))
	return nil
}

func (d *fakeDatapath) SweepFlows() (int, error) { return 0, nil }

func (d *fakeDatapath) LostDatagrams() (map[string]uint64, error) {
	return map[string]uint64{"another_tenant": 7}, nil
}

func (d *fakeDatapath) Verdicts() (map[string]model.Counter, error) {
	return map[string]model.Counter{"forward_syn": {Packets: 3, Bytes: 180}}, nil
}

func (d *fakeDatapath) SetSYNSecrets([]model.SYNSecret) error { return nil }

func (d *fakeDatapath) SYNStates() map[model.EndpointKey]mux.SYNState {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.syn)
}

// SYNCounters are those of one endpoint, and grow at each look while flooded says so.
func (d *fakeDatapath) SYNCounters() (map[model.EndpointKey]mux.SYNCounter, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return map[model.EndpointKey]mux.SYNCounter{key(10): d.syns}, nil
}

func (d *fakeDatapath) SetSYNState(k model.EndpointKey, s mux.SYNState) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.syn == nil {
		d.syn = map[model.EndpointKey]mux.SYNState{}
	}
	d.syn[k] = s
	return nil
}

func (d *fakeDatapath) EndpointCounters() (map[model.EndpointKey]model.Counter, error) {
	return map[model.EndpointKey]model.Counter{key(10): {Packets: 3, Bytes: 180}}, nil
}

func (d *fakeDatapath) Usage() (mux.Usage, error) {
	room := mux.TableUsage{Used: 1, Size: 4}
	tenants, err := d.TenantUsage()
	return mux.Usage{
		Endpoints: room, Buckets: room, Backends: room, FlowCells: 64, VIPs: []mux.VIPUsage{{VIP: key(10).VIP, Limit: 8}}, Tenants: tenants,
	}, err
}

func (d *fakeDatapath) TenantUsage() ([]mux.TenantUsage, error) {
	return []mux.TenantUsage{{Tenant: "acme", Flows: mux.FlowUsage{Untrusted: 9, Trusted: 5}, Guaranteed: 6, Limit: 8}}, nil
}

func (d *fakeDatapath) Explain(frame []byte) (model.Explanation, error) {
	return model.Explanation{Verdict: "forward_syn", Action: "transmit", Frame: frame}, nil
}

// Capture hands on one packet, then goes on until ctx ends it.
func (d *fakeDatapath) Capture(ctx context.Context, _ model.Capture, to func([]model.CapturedPacket, uint64) error) error {
	if err := to([]model.CapturedPacket{{Verdict: "drop_no_backend"}}, 3); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func (d *fakeDatapath) TakeOver() error { return nil }

func (d *fakeDatapath) Close() error  { d.note("close"); return nil }
func (d *fakeDatapath) Unload() error { d.note("unload"); return nil }

// fakeSpeaker notes what is announced, when it changes.
type fakeSpeaker struct {
	*journal
	announced string
	broken    chan error // ends Run
}

func (s *fakeSpeaker) Announce(routes []bgp.Route) error {
	if text := fmt.Sprint(routes); text != s.announced {
		s.announced = text
		s.note("announce %s", text)
	}
	for _, r := range routes {
		if r.Prefix.Addr().Is6() {
			return errors.Join(fmt.Errorf("announce %s: no next hop", r))
		}
	}
	return nil
}

func (s *fakeSpeaker) Peers() []bgp.PeerState {
	return []bgp.PeerState{{Address: addr("10.0.0.1"), AS: 65000, State: "active", BFD: "down", LastError: "no answer"}}
}

func (s *fakeSpeaker) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		s.note("sessions closed")
		return nil
	case err := <-s.broken:
		return err
	}
}

func (s *fakeSpeaker) HandOver() { s.note("speaker hands over") }

// fakeHops notes the destinations; a test tells the state.
type fakeHops struct {
	*journal
	changed func(HopState)
	last    string
}

func (h *fakeHops) SetDestinations(destinations []netip.Addr) {
	if text := fmt.Sprint(destinations); text != h.last {
		h.last = text
		h.note("destinations %s", text)
	}
}

func (h *fakeHops) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// fakeManager has no stream, and takes reports.
type fakeManager struct {
	reports chan *weirv1.ReportMuxRequest
	answers chan *weirv1.AnswerTaskRequest
	gone    bool // nobody waits for answers
}

func (m *fakeManager) AnswerTask(ctx context.Context, r *weirv1.AnswerTaskRequest) (*weirv1.AnswerTaskResponse, error) {
	select {
	case m.answers <- r:
	case <-ctx.Done():
	}
	return &weirv1.AnswerTaskResponse{Gone: m.gone}, nil
}

func (m *fakeManager) SyncMux(ctx context.Context, _ *weirv1.SyncMuxRequest) (*connect.ServerStreamForClient[weirv1.SyncMuxResponse], error) {
	return nil, errors.New("manager is away")
}

func (m *fakeManager) AcknowledgeMux(context.Context) (*rpc.Acknowledgements, error) {
	return nil, errors.New("manager is away")
}

func (m *fakeManager) ReportMux(ctx context.Context, r *weirv1.ReportMuxRequest) (*weirv1.ReportMuxResponse, error) {
	select {
	case m.reports <- r:
	case <-ctx.Done():
	}
	return &weirv1.ReportMuxResponse{}, nil
}

// bench is a Mux on fakes.
type bench struct {
	t *testing.T
	*journal
	datapath *fakeDatapath
	speaker  *fakeSpeaker
	hops     *fakeHops
	manager  *fakeManager
	mux      *Mux

	discarded string // by the kernel
}

func newBench(t *testing.T, change func(*Config), live ...model.MuxEndpoint) *bench {
	t.Helper()
	j := &journal{}
	b := &bench{
		t: t, journal: j,
		datapath: &fakeDatapath{journal: j, endpoints: map[model.EndpointKey]model.MuxEndpoint{}, lists: map[string]model.PrefixSet{}},
		speaker:  &fakeSpeaker{journal: j, announced: "[]", broken: make(chan error)},
		hops:     &fakeHops{journal: j, last: "[]"},
		manager:  &fakeManager{reports: make(chan *weirv1.ReportMuxRequest), answers: make(chan *weirv1.AnswerTaskRequest, 16)},
	}
	for _, e := range live {
		b.datapath.endpoints[e.Key] = e
		b.datapath.generation = 7
	}
	config := Config{
		Name: "mux-1", Interface: "eth0", Source4: addr("10.7.0.9"), MTU: 1500,
		Datapath: b.datapath, Speaker: b.speaker, Manager: b.manager, Log: slog.New(slog.DiscardHandler),
		NextHops: func(changed func(HopState)) (NextHops, error) {
			b.hops.changed = changed
			return b.hops, nil
		},
		Discard: b.discard,
	}
	if change != nil {
		change(&config)
	}
	m, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	b.mux = m
	return b
}

// discard notes what the kernel is told to discard.
func (b *bench) discard(prefixes []netip.Prefix) error {
	b.discarded = fmt.Sprint(prefixes)
	return nil
}

// did checks what was done since the last time, line by line.
func (b *bench) did(want ...string) {
	b.t.Helper()
	if got := b.take(); got != strings.Join(want, "\n") {
		b.t.Errorf("did:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

func (b *bench) apply(update wire.MuxUpdate) error {
	return b.mux.tables.apply(context.Background(), update)
}

// run runs the mux; end waits for its end.
func (b *bench) run(ctx context.Context) (end func() error) {
	ended := make(chan error, 1)
	go func() { ended <- b.mux.Run(ctx, nil) }()
	return func() error {
		b.t.Helper()
		for {
			select {
			case err := <-ended:
				return err
			case <-b.manager.reports:
			case <-time.After(20 * time.Second):
				b.t.Fatal("the mux does not end")
			}
		}
	}
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// key is TCP 203.0.113.N:80.
func key(n byte) model.EndpointKey {
	return model.EndpointKey{VIP: netip.AddrFrom4([4]byte{203, 0, 113, n}), Protocol: model.TCP, Port: 80}
}

// endpoint has one backend per tunnel.
func endpoint(k model.EndpointKey, tunnels ...string) model.MuxEndpoint {
	e := model.MuxEndpoint{Key: k}
	for i, tunnel := range tunnels {
		e.Backends = append(e.Backends, model.MuxBackend{Slot: model.Slot(i + 1), Tunnel: addr(tunnel)})
	}
	return e
}

// resolved is a state in which all destinations have a next hop.
func resolved(destinations ...string) HopState {
	s := HopState{NextHops: map[netip.Addr]model.NextHop{}, Problems: map[netip.Addr]string{}, MTU: 1500}
	for _, d := range destinations {
		s.NextHops[addr(d)] = model.NextHop{Source: [6]byte{2}, Destination: [6]byte{4}}
	}
	return s
}

// snapshot is a whole table of a generation.
func snapshot(generation model.Generation, endpoints ...model.MuxEndpoint) wire.MuxUpdate {
	return wire.MuxUpdate{Generation: generation, Snapshot: true, Endpoints: endpoints, HashKey: [40]byte{0xab}}
}
