package muxd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/bgp"
	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/datapath/mux/flow"
	"github.com/weirlb/weir/internal/datapath/mux/overlay"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/muxd/fairdrop"
	"github.com/weirlb/weir/internal/muxd/forwarding"
	"github.com/weirlb/weir/internal/muxd/neighbor"
	"github.com/weirlb/weir/internal/muxd/synflood"
	"github.com/weirlb/weir/internal/muxd/task"
	"github.com/weirlb/weir/internal/netlink"
	"github.com/weirlb/weir/internal/rpc"
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

var (
	web    = model.EndpointKey{VIP: addr("203.0.113.10"), Protocol: model.TCP, Port: 80}
	tunnel = addr("10.2.0.1") // of its backend
	// resolved is the state in which the tunnel has a next hop.
	resolved = netlink.State{
		NextHops: map[netip.Addr]model.NextHop{tunnel: {Source: [6]byte{2}, Destination: [6]byte{4}}}, MTU: 1500,
	}
)

// notCalled are what no test here has called.
type notCalled interface {
	synflood.Datapath
	fairdrop.Datapath
	forwarding.Datapath
	neighbor.Datapath
	task.Datapath
}

// fakeDatapath has counters without a kernel, and the endpoint if it is live. It takes all updates.
type fakeDatapath struct {
	*journal
	notCalled

	mode       string // empty: native
	live       bool
	settings   pool.Settings
	generation model.Generation
}

func (d *fakeDatapath) Mode() string                          { return cmp.Or(d.mode, "native") }
func (d *fakeDatapath) Settings() (pool.Settings, error)      { return d.settings, nil }
func (d *fakeDatapath) Generation() (model.Generation, error) { return d.generation, nil }

func (d *fakeDatapath) SetSettings(s pool.Settings) error {
	d.settings = s
	return nil
}

func (d *fakeDatapath) SetGeneration(g model.Generation) error {
	d.generation = g
	return nil
}

func (d *fakeDatapath) Endpoints() ([]model.EndpointKey, error) {
	if !d.live {
		return nil, nil
	}
	return []model.EndpointKey{web}, nil
}

func (d *fakeDatapath) VIPs() ([]netip.Addr, error) { return nil, nil }

func (d *fakeDatapath) Tunnels() []netip.Addr {
	if !d.live {
		return nil
	}
	return []netip.Addr{tunnel}
}

func (d *fakeDatapath) Update(endpoint.Update) error                    { return nil }
func (d *fakeDatapath) PrefixList(string) model.PrefixSet               { return model.PrefixSet{} }
func (d *fakeDatapath) FreeSourceRows() int                             { return 0 }
func (d *fakeDatapath) SetNextHops(map[netip.Addr]model.NextHop) error  { return nil }
func (d *fakeDatapath) SetPoolMembers(string, []model.PoolMember) error { return nil }
func (d *fakeDatapath) SetMuxes(int) error                              { return nil }
func (d *fakeDatapath) TakeOver() error                                 { return nil }
func (d *fakeDatapath) SNATDigest() (ranges int, digest uint64)         { return 2, 7 }

func (d *fakeDatapath) MaxAttachments() int                              { return 0 }
func (d *fakeDatapath) SetNATPrefixes(_, _ netip.Prefix) error           { return nil }
func (d *fakeDatapath) OverlayAddresses() (v4, v6 netip.Addr, err error) { return v4, v6, nil }

func (d *fakeDatapath) Attachments() (all map[uint32]overlay.Attachment, err error) { return nil, nil }

func (d *fakeDatapath) RefusedCounters() (map[netip.Addr]model.Counter, error) {
	return map[netip.Addr]model.Counter{web.VIP: {Packets: 2, Bytes: 120}}, nil
}

func (d *fakeDatapath) SNATCounters() (map[netip.Addr]model.Counter, error) {
	return map[netip.Addr]model.Counter{web.VIP: {Packets: 5, Bytes: 300}}, nil
}

func (d *fakeDatapath) SweepFlows() (int, error) { return 0, nil }

func (d *fakeDatapath) LostDatagrams() (map[string]uint64, error) {
	return map[string]uint64{"another_tenant": 7}, nil
}

func (d *fakeDatapath) Verdicts() (map[string]model.Counter, error) {
	return map[string]model.Counter{"forward_syn": {Packets: 3, Bytes: 180}}, nil
}

func (d *fakeDatapath) SetSYNSecrets([]model.SYNSecret) error { return nil }

func (d *fakeDatapath) SYNStates() map[model.EndpointKey]endpoint.SYNState { return nil }

func (d *fakeDatapath) SYNCounters() (map[model.EndpointKey]endpoint.SYNCounter, error) {
	return nil, nil
}

func (d *fakeDatapath) EndpointCounters() (map[model.EndpointKey]model.Counter, error) {
	return map[model.EndpointKey]model.Counter{web: {Packets: 3, Bytes: 180}}, nil
}

func (d *fakeDatapath) Usage() (mux.Usage, error) {
	room := mux.TableUsage{Used: 1, Size: 4}
	tenants, err := d.TenantUsage()
	return mux.Usage{
		Endpoints: room, Buckets: room, Backends: room, FlowCells: 64, VIPs: []mux.VIPUsage{{VIP: web.VIP, Limit: 8}},
		Tenants: tenants,
	}, err
}

func (d *fakeDatapath) TenantUsage() ([]flow.TenantUsage, error) {
	return []flow.TenantUsage{{Tenant: "acme", Flows: flow.Usage{Untrusted: 9, Trusted: 5}, Guaranteed: 6, Limit: 8}}, nil
}

func (d *fakeDatapath) Close() error  { d.note("close"); return nil }
func (d *fakeDatapath) Unload() error { d.note("unload"); return nil }

// fakeSpeaker notes what is announced, when it changes.
type fakeSpeaker struct {
	*journal
	announced string
	broken    chan error // ends Run
}

func (s *fakeSpeaker) AnnounceMACs([]bgp.MACRoute) error { return nil }

func (s *fakeSpeaker) Announce(routes []bgp.Route) error {
	if text := fmt.Sprint(routes); text != s.announced {
		s.announced = text
		s.note("announce %s", text)
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

// fakeHops has no next hops; a test tells the state.
type fakeHops struct{ changed func(netlink.State) }

func (h *fakeHops) SetDestinations([]netip.Addr) {}

func (h *fakeHops) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// fakeManager has no stream, and takes reports.
type fakeManager struct {
	reports chan *weirv1.ReportMuxRequest
	opened  []*weirv1.SyncMuxRequest
	stream  context.Context // of the last one
}

func (m *fakeManager) AnswerTask(context.Context, *weirv1.AnswerTaskRequest) (*weirv1.AnswerTaskResponse, error) {
	return nil, errors.New("manager is away")
}

func (m *fakeManager) SyncMux(ctx context.Context, r *weirv1.SyncMuxRequest) (
	*connect.ServerStreamForClient[weirv1.SyncMuxResponse], error,
) {
	m.opened, m.stream = append(m.opened, r), ctx
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

// newBench makes a mux, with live tables or without.
func newBench(t *testing.T, live bool, change func(*Config)) *bench {
	t.Helper()
	j := &journal{}
	b := &bench{
		t: t, journal: j,
		datapath: &fakeDatapath{journal: j, live: live},
		speaker:  &fakeSpeaker{journal: j, announced: "[]", broken: make(chan error)},
		hops:     &fakeHops{},
		manager:  &fakeManager{reports: make(chan *weirv1.ReportMuxRequest)},
	}
	if live {
		b.datapath.generation = 7
	}
	config := Config{
		Name: "mux-1", Interface: "eth0", Settings: pool.Settings{Source4: addr("10.7.0.9"), MTU: 1500},
		Datapath: b.datapath, Speaker: b.speaker, Manager: b.manager, Log: slog.New(slog.DiscardHandler),
		NextHops: func(changed func(netlink.State)) (NextHops, error) {
			b.hops.changed = changed
			return b.hops, nil
		},
		Discard: func(prefixes []netip.Prefix) error {
			b.discarded = fmt.Sprint(prefixes)
			return nil
		},
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

// did checks what was done since the last time, line by line.
func (b *bench) did(want ...string) {
	b.t.Helper()
	if got := b.take(); got != strings.Join(want, "\n") {
		b.t.Errorf("did:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
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
