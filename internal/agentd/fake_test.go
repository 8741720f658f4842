package agentd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeDatapath holds tables without a kernel, and refuses more rules than room.
type fakeDatapath struct {
	mu         sync.Mutex
	room       int
	rules      map[model.HostBackendKey]netip.AddrPort
	muxes      []netip.Prefix
	steered    []steering.VIP
	key        flowhash.Key
	secrets    []model.SYNSecret
	workloads  map[netip.Addr]int
	refused    []netip.Addr
	generation model.Generation
	calls      []string
	steers     error  // of Steer
	broken     string // fails Refresh and SetWorkloads
}

func newFakeDatapath() *fakeDatapath {
	return &fakeDatapath{room: 1 << 20, rules: map[model.HostBackendKey]netip.AddrPort{}}
}

func (d *fakeDatapath) call(format string, args ...any) {
	d.calls = append(d.calls, fmt.Sprintf(format, args...))
}

func (d *fakeDatapath) Refresh() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken != "" {
		return errors.New(d.broken)
	}
	return nil
}

func (d *fakeDatapath) Apply(upserts []model.HostBackend, removed []model.HostBackendKey) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.call("apply +%d -%d", len(upserts), len(removed))
	rules := maps.Clone(d.rules)
	for _, key := range removed {
		delete(rules, key)
	}
	for _, b := range upserts {
		rules[b.Key()] = b.Backend
	}
	return d.setRules(rules)
}

func (d *fakeDatapath) Replace(all []model.HostBackend) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.call("replace %d", len(all))
	rules := map[model.HostBackendKey]netip.AddrPort{}
	for _, b := range all {
		rules[b.Key()] = b.Backend
	}
	return d.setRules(rules)
}

func (d *fakeDatapath) setRules(rules map[model.HostBackendKey]netip.AddrPort) error {
	if len(rules) > d.room {
		return fmt.Errorf("set rules: needs %d, has room for %d", len(rules), d.room)
	}
	d.rules = rules
	return nil
}

func (d *fakeDatapath) SetMuxes(muxes []netip.Prefix) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.call("muxes %d", len(muxes))
	d.muxes = muxes
	return nil
}

func (d *fakeDatapath) Steer(vips []steering.VIP) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.steered = vips
	return d.steers
}

func (d *fakeDatapath) Steered() (map[string]model.Counter, error) { return nil, nil }

func (d *fakeDatapath) SetHashKey(key flowhash.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.key = key
}

func (d *fakeDatapath) SetSYNSecrets(secrets []model.SYNSecret) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.secrets = secrets
	return nil
}

func (d *fakeDatapath) synSecrets() []model.SYNSecret {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.secrets
}

func (d *fakeDatapath) SetWorkloads(interfaces map[netip.Addr]int, refused []netip.Addr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.call("workloads %d", len(interfaces))
	if d.broken != "" {
		return errors.New(d.broken)
	}
	d.workloads, d.refused = interfaces, refused
	return nil
}

func (d *fakeDatapath) SetGeneration(g model.Generation) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.call("generation %d", g)
	d.generation = g
	return nil
}

func (d *fakeDatapath) Generation() (model.Generation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.generation, nil
}

func (d *fakeDatapath) LostDatagrams() (map[string]uint64, error) {
	return map[string]uint64{"another_tenant": 7}, nil
}

func (d *fakeDatapath) Verdicts() (map[string]model.Counter, error) {
	return map[string]model.Counter{"deliver_native": {Packets: 3, Bytes: 300}, "drop_no_rule": {}}, nil
}

// took returns the calls since the last time, as one line.
func (d *fakeDatapath) took() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	line := strings.Join(d.calls, ", ")
	d.calls = nil
	return line
}

func (d *fakeDatapath) fit(room int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room = room
}

func (d *fakeDatapath) breakDown(why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = why
}

func (d *fakeDatapath) live() map[netip.Addr]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.workloads)
}

func (d *fakeDatapath) refusals() []netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.refused)
}

// fakeWorkloads knows where addresses are; all others are beyond the uplink.
type fakeWorkloads struct {
	mu      sync.Mutex
	at      map[netip.Addr]int
	changes chan struct{}
}

func newFakeWorkloads() *fakeWorkloads {
	return &fakeWorkloads{at: map[netip.Addr]int{}, changes: make(chan struct{})}
}

func (w *fakeWorkloads) move(address netip.Addr, to int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at[address] = to
}

func (w *fakeWorkloads) Locate(addresses []netip.Addr) (map[netip.Addr]int, map[netip.Addr]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	found, missing := map[netip.Addr]int{}, map[netip.Addr]string{}
	for _, a := range addresses {
		if at, ok := w.at[a]; ok {
			found[a] = at
		} else {
			missing[a] = fmt.Sprintf("backend %s is not on this host", a)
		}
	}
	return found, missing, nil
}

func (w *fakeWorkloads) Watch(ctx context.Context, changed func()) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.changes:
			changed()
		}
	}
}

// fakeManager serves one host's stream and keeps what it reports.
type fakeManager struct {
	weirv1connect.UnimplementedSyncServiceHandler
	updates chan wire.HostUpdate // sent on the open stream
	hangUp  chan struct{}        // ends it
	hello   chan *weirv1.SyncHostRequest

	mu      sync.Mutex
	reports []*weirv1.ReportHostRequest
}

func (m *fakeManager) SyncHost(ctx context.Context, hello *weirv1.SyncHostRequest, stream *connect.ServerStream[weirv1.SyncHostResponse]) error {
	m.hello <- hello
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.hangUp:
			return nil
		case update := <-m.updates:
			if err := stream.Send(wire.HostUpdateToProto(update)); err != nil {
				return err
			}
		}
	}
}

func (m *fakeManager) ReportHost(_ context.Context, report *weirv1.ReportHostRequest) (*weirv1.ReportHostResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reports = append(m.reports, report)
	return &weirv1.ReportHostResponse{}, nil
}

// await polls until some report satisfies want, and forgets all reports up to it.
func (m *fakeManager) await(t *testing.T, what string, want func(*weirv1.ReportHostRequest) bool) *weirv1.ReportHostRequest {
	t.Helper()
	var found *weirv1.ReportHostRequest
	eventually(t, "a report with "+what, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		i := slices.IndexFunc(m.reports, want)
		if i < 0 {
			return false
		}
		found = m.reports[i]
		m.reports = m.reports[i+1:]
		return true
	})
	return found
}

// healths are what a report tells, as text.
func healths(report *weirv1.ReportHostRequest) string {
	var all []string
	for _, h := range report.GetHealth() {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s:%d %s %s", h.GetAddress(), h.GetPort(), h.GetHealth(), h.GetReason())))
	}
	return strings.Join(all, ", ")
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if condition() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}

// backend is the n-th of an endpoint, checked every two seconds with rise 2 and fall 3.
func backend(n int) model.HostBackend {
	dip := netip.AddrFrom4([4]byte{10, 3, byte(n >> 8), byte(n)})
	return model.HostBackend{
		Endpoint: model.EndpointKey{VIP: netip.MustParseAddr("203.0.113.10"), Protocol: model.TCP, Port: 80},
		Tunnel:   dip, Backend: netip.AddrPortFrom(dip, 8080),
		HealthCheck: &model.HealthCheck{Type: model.CheckTCP, Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3},
	}
}

// probes counts the checks of each backend and answers as told.
type probes struct {
	mu      sync.Mutex
	count   map[netip.AddrPort]int
	failure string
}

func (p *probes) run(_ context.Context, b model.HostBackend) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count[b.Backend]++
	if p.failure != "" {
		return errors.New(p.failure)
	}
	return nil
}

// counts says how often each backend was asked.
func (p *probes) counts() map[netip.AddrPort]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.count)
}

func (p *probes) answer(failure string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failure = failure
}

// bench is an agent with everything around it faked, but for the wire.
type bench struct {
	agent     *Agent
	datapath  *fakeDatapath
	workloads *fakeWorkloads
	manager   *fakeManager
	probes    *probes
	kept      atomic.Int64 // calls of KeepAlive
	stop      func()
}

// newBench starts an agent against a manager at a real socket.
func newBench(t *testing.T, prepare func(*Config, *bench)) *bench {
	t.Helper()
	b := &bench{
		datapath: newFakeDatapath(), workloads: newFakeWorkloads(),
		manager: &fakeManager{
			updates: make(chan wire.HostUpdate), hangUp: make(chan struct{}), hello: make(chan *weirv1.SyncHostRequest, 16),
		},
		probes: &probes{count: map[netip.AddrPort]int{}},
	}
	_, handler := weirv1connect.NewSyncServiceHandler(b.manager)
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	client, err := rpc.NewClient(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	config := Config{
		Name: "host1", Addresses: []netip.Addr{netip.MustParseAddr("10.2.0.1")}, Version: "test", Uplink: "eth0",
		Datapath: b.datapath, Workloads: b.workloads, Manager: client, Probe: b.probes.run,
		Sweep:            func() (session.Report, error) { return session.Report{Live: 42}, nil },
		EvacuateSessions: func(map[netip.Addr]bool) (session.EvacuatedSessions, error) { return session.EvacuatedSessions{}, nil },
		KeepAlive:        func() (int, error) { b.kept.Add(1); return 0, nil }, KeepAliveInterval: 10 * time.Millisecond, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if prepare != nil {
		prepare(&config, b)
	}
	if b.agent, err = New(config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- b.agent.Run(ctx) }()
	b.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		client.Close()
		server.Close()
	}
	t.Cleanup(b.stop)
	return b
}
