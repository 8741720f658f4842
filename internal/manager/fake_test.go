package manager

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/backlog"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/snat"
	"github.com/weirlb/weir/internal/wire"
)

// fakeMux follows a manager as weir-mux does, into maps instead of a data plane.
type fakeMux struct {
	name    string
	client  *rpc.Client
	reports sync.Mutex // as a host's

	mu         sync.Mutex
	generation model.Generation
	tables     map[model.EndpointKey]model.MuxEndpoint
	snat       map[model.SNATKey]model.MuxSNAT
	lies       bool // it says that it has no ranges
	keeps      bool // it was told last to keep what it has of source NAT
	snapshots  int
	messages   int
	mute       bool   // it reads, and reports nothing
	reject     string // why it refuses what comes next, if it does
	withdrawn  bool   // it was told to take its routes back
	wentBack   bool   // a generation was less than one before
	pool       []model.PoolMember
	routes     []model.VIPRoute
	backlogs   []backlog.Endpoint
	usual      int                   // messages that told of none
	pressures  []*weirv1.VIPPressure // that it reports
	lists      map[string]model.PrefixSet
	chunks     wire.PrefixChunks // of the stream alone
	portLists  wire.PortLists    // likewise
	pieces     int               // messages of chunks alone
	sent       int               // chunks that came with updates
	moved      int               // buckets that named another backend too, when they were most
	acks       rpc.Acknowledger
	networks   muxNetworks

	explanation *weirv1.PacketExplanation // of any packet; nil: it drops it
}

func startMux(t *testing.T, url, name, address string, change ...func(*fakeMux)) *fakeMux {
	m := &fakeMux{
		name: name, client: dial(t, url), tables: map[model.EndpointKey]model.MuxEndpoint{}, snat: map[model.SNATKey]model.MuxSNAT{},
	}
	m.acks = rpc.Acknowledger{Name: name, Open: m.client.AcknowledgeMux}
	for _, c := range change {
		c(m)
	}
	goFollow(t, m.name, func(ctx context.Context) (*connect.ServerStreamForClient[weirv1.SyncMuxResponse], error) {
		m.mu.Lock()
		joins := m.messages == 0
		m.mu.Unlock()
		m.portLists = wire.PortLists{}
		return m.client.SyncMux(ctx, &weirv1.SyncMuxRequest{
			Name: name, Addresses: []string{address}, Version: "test", Joins: joins, PrefixChunks: m.chunks.IDs(), SnatDeltas: true,
		})
	}, m.apply)
	return m
}

func (m *fakeMux) read(p *weirv1.SyncMuxResponse) (wire.MuxUpdate, error) {
	if err := m.portLists.CompleteMux(p); err != nil {
		return wire.MuxUpdate{}, err
	}
	return wire.MuxUpdateFromProto(p, &m.chunks)
}

func (m *fakeMux) apply(p *weirv1.SyncMuxResponse) error {
	if len(p.GetTasks()) > 0 { // they come by themselves
		return m.answer(p.GetTasks())
	}
	if alone, err := m.chunks.Take(p); alone || err != nil {
		m.pieces++
		return err
	}
	u, err := m.read(p)
	if err != nil {
		return err
	}
	m.reports.Lock()
	defer m.reports.Unlock()
	return m.take(p, u)
}

// take has the update of a message be the mux's tables, and says so.
func (m *fakeMux) take(p *weirv1.SyncMuxResponse, u wire.MuxUpdate) error {
	m.mu.Lock()
	report := &weirv1.ReportMuxRequest{Name: m.name, Status: &weirv1.MuxStatus{XdpMode: "native", Interface: "eth0"}}
	m.wentBack = m.wentBack || u.Generation < m.generation
	m.messages++
	if m.reject != "" {
		report.Rejection = &weirv1.Rejection{Generation: uint64(u.Generation), Reason: m.reject}
	} else {
		if u.Snapshot {
			m.snapshots++
			m.tables = map[model.EndpointKey]model.MuxEndpoint{}
			m.snat = map[model.SNATKey]model.MuxSNAT{}
			m.lists = map[string]model.PrefixSet{}
		}
		for _, s := range u.SNAT {
			m.snat[s.Key] = s
		}
		for _, key := range u.SNATRemoved {
			delete(m.snat, key)
		}
		for _, e := range u.Endpoints {
			m.tables[e.Key] = e
		}
		m.applyLists(p, u)
		m.chunks.Applied(u)
		for _, key := range u.Removed {
			delete(m.tables, key)
		}
		m.networks.apply(u)
		if m.generation, m.pool, m.routes, m.keeps, m.backlogs = u.Generation, u.Pool, u.Routes, u.KeepSNAT, u.Backlogs; len(u.Routes) == 0 {
			m.usual++
		}
		m.moved = max(m.moved, m.underWay())
	}
	report.Generation, report.Status.Snat, report.Status.Pressures = uint64(m.generation), m.snatStatus(), m.pressures
	m.withdrawn = u.Withdraw
	mute := m.mute
	if u.Snapshot {
		m.acks.Close() // the stream is another one
	}
	// It has little to report, and reports half of that.
	acknowledges := m.messages%2 == 0 && !u.Snapshot && m.reject == "" && !m.lies && m.pressures == nil
	m.mu.Unlock()
	if mute || acknowledges && m.acks.Send(context.Background(), uint64(m.generation), 0) == nil {
		return nil
	}
	_, err := m.client.ReportMux(context.Background(), report)
	return err
}

func (m *fakeMux) applyLists(p *weirv1.SyncMuxResponse, u wire.MuxUpdate) {
	m.sent += len(p.GetPrefixChunks())
	for _, l := range u.Lists {
		m.lists[l.Name] = l.Prefixes
	}
	for _, name := range u.ListsRemoved {
		delete(m.lists, name)
	}
}

// answer does what an operator asks.
func (m *fakeMux) answer(tasks []*weirv1.NodeTask) error {
	m.mu.Lock()
	explanation := m.explanation
	m.mu.Unlock()
	if explanation == nil {
		explanation = &weirv1.PacketExplanation{Verdict: "drop_of_" + m.name}
	}
	for _, task := range tasks {
		answer := &weirv1.AnswerTaskRequest{Name: m.name, Id: task.GetId()}
		switch {
		case task.GetExplain() != nil:
			answer.Explanation = explanation
		case task.GetCapture() != nil:
			answer.Packets, answer.Done = []*weirv1.CapturedPacket{{Verdict: "drop_of_" + m.name}}, true
		default:
			continue
		}
		if _, err := m.client.AnswerTask(context.Background(), answer); err != nil {
			return err
		}
	}
	return nil
}

// snatStatus is what the tables hold of source NAT.
func (m *fakeMux) snatStatus() *weirv1.MuxSNATStatus {
	status := &weirv1.MuxSNATStatus{Generation: uint64(m.generation)}
	if m.lies {
		return status
	}
	for key, s := range m.snat {
		status.Ranges += uint64(len(s.Ranges))
		status.Digest ^= snat.Digest(key.VIP, s.Tunnel, s.Ranges...)
	}
	return status
}

// owners are those that have the ranges of a VIP; there may be several of one only while it is an error.
func (m *fakeMux) owners(vip netip.Addr) map[model.Range][]netip.Addr {
	m.mu.Lock()
	defer m.mu.Unlock()
	owners := map[model.Range][]netip.Addr{}
	for key, s := range m.snat {
		for _, r := range s.Ranges {
			if key.VIP == vip {
				owners[r] = append(owners[r], key.Address)
			}
		}
	}
	return owners
}

func (m *fakeMux) set(reject string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reject = reject
}

// setMute has the mux report nothing from now on, or go on to do so with what comes next.
func (m *fakeMux) setMute(mute bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mute = mute
}

func (m *fakeMux) has(generation uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return uint64(m.generation) >= generation
}

// String shows the tables as the scenarios do.
func (m *fakeMux) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b strings.Builder
	for _, key := range slices.SortedFunc(maps.Keys(m.tables), model.EndpointKey.Compare) {
		e := m.tables[key]
		fmt.Fprintf(&b, "%s (tenant %s): %d buckets\n", key, e.Tenant, len(e.Buckets))
		for _, row := range e.Backends {
			share := 0
			for _, slot := range e.Buckets {
				if slot == row.Slot {
					share++
				}
			}
			fmt.Fprintf(&b, "  slot %d: %d buckets to %s through %s", row.Slot, share, row.Backend, row.Tunnel)
			if row.Down {
				b.WriteString(", down")
			}
			b.WriteString("\n")
		}
	}
	if b.Len() == 0 {
		return "no endpoints\n"
	}
	return b.String()
}

// fakeHost follows a manager as weir-agent does.
type fakeHost struct {
	name      string
	client    *rpc.Client
	portLists wire.PortLists // of the stream alone
	reports   sync.Mutex     // one comes after the other, as an agent's do: none is overtaken by an older one

	mu         sync.Mutex
	generation model.Generation
	backends   map[model.HostBackendKey]model.HostBackend
	snat       map[model.SNATKey]model.HostSNAT
	snapshots  int // of SNAT
	lies       bool
	tells      bool // its ranges, as it was asked to
	muxes      []netip.Prefix
	silent     bool // it does not acknowledge
	key        flowhash.Key
	networks   hostNetworks
	backlogs   []*weirv1.BackendBacklog // that it reports
	unsteered  []string                 // VIPs that it has no room to steer

	connections uint32                    // that it has
	mute        bool                      // it answers no task
	explanation *weirv1.PacketExplanation // of any packet
	endless     bool                      // its list has no end
}

func startHost(t *testing.T, url, name string, addresses ...string) *fakeHost {
	return startHostWith(t, url, name, map[model.SNATKey]model.HostSNAT{}, addresses...)
}

// startHostWith starts a host that has ports already, which managers told it that are gone.
func startHostWith(t *testing.T, url, name string, has map[model.SNATKey]model.HostSNAT, addresses ...string) *fakeHost {
	return startHostAs(t, url, &weirv1.SyncHostRequest{Name: name, Addresses: addresses, Version: "test", Multipath: true}, has)
}

// startBlockHost starts a host that serves its workloads from port blocks.
func startBlockHost(t *testing.T, url, name string, addresses ...string) *fakeHost {
	return startHostAs(t, url, &weirv1.SyncHostRequest{Name: name, Addresses: addresses, Version: "test", PortBlocks: true}, map[model.SNATKey]model.HostSNAT{})
}

func startHostAs(t *testing.T, url string, request *weirv1.SyncHostRequest, has map[model.SNATKey]model.HostSNAT) *fakeHost {
	h := &fakeHost{name: request.GetName(), client: dial(t, url), backends: map[model.HostBackendKey]model.HostBackend{}, snat: has}
	request.SnatDeltas = true
	goFollow(t, h.name, func(ctx context.Context) (*connect.ServerStreamForClient[weirv1.SyncHostResponse], error) {
		h.portLists = wire.PortLists{}
		return h.client.SyncHost(ctx, request)
	}, h.apply)
	return h
}

func (h *fakeHost) apply(p *weirv1.SyncHostResponse) error {
	if len(p.GetTasks()) > 0 { // they come by themselves
		return h.answer(p.GetTasks())
	}
	if err := h.portLists.CompleteHost(p); err != nil {
		return err
	}
	u, err := wire.HostUpdateFromProto(p)
	if err != nil {
		return err
	}
	h.mu.Lock()
	if u.Snapshot {
		h.backends = map[model.HostBackendKey]model.HostBackend{}
	}
	if u.HashKey != (flowhash.Key{}) {
		h.key = u.HashKey
	}
	for _, b := range u.Backends {
		h.backends[b.Key()] = b
	}
	for _, key := range u.Removed {
		delete(h.backends, key)
	}
	before := h.snat
	if h.tells = u.TellRanges; u.SNATSnapshot {
		h.snapshots++
		h.snat = map[model.SNATKey]model.HostSNAT{}
	}
	for _, s := range u.SNAT {
		if own := before[s.Key]; s.Written < own.Written { // as an agent does: an answer has overtaken it
			s.Ranges, s.Written = own.Ranges, own.Written
		}
		h.snat[s.Key] = s
	}
	for _, key := range u.SNATRemoved {
		delete(h.snat, key)
	}
	h.networks.apply(u)
	h.generation, h.muxes = u.Generation, u.Muxes
	silent := h.silent
	h.mu.Unlock()
	if silent {
		return nil
	}
	return h.report()
}

// report tells the manager the generation and health.
func (h *fakeHost) report(health ...model.BackendHealth) error {
	h.reports.Lock()
	defer h.reports.Unlock()
	h.mu.Lock()
	r := &weirv1.ReportHostRequest{Name: h.name, Generation: uint64(h.generation), Status: &weirv1.HostStatus{Uplink: "eth0", TellsRanges: h.tells, Backlogs: h.backlogs}}
	for _, vip := range h.unsteered {
		r.Status.SteeringRefused = append(r.Status.SteeringRefused, &weirv1.SteeringRefusal{Vip: vip, Reason: "needs 2 endpoints, has room for 1"})
	}
	for key, s := range h.snat {
		use := &weirv1.SNATUse{
			Vip: key.VIP.String(), Address: key.Address.String(), Ranges: uint32(len(s.Ranges)), Written: uint64(s.Written), Flows: 7,
			Destinations: []*weirv1.SNATDestination{{Address: "198.51.100.7", Port: 443, Protocol: "TCP", Flows: 7}},
		}
		if use.Digest = snat.Digest(key.VIP, s.Tunnel, s.Ranges...); h.lies {
			use.Digest++
		}
		if h.tells {
			use.RangeNumbers = wire.RangesToProto(s.Ranges)
		}
		r.Status.Snat = append(r.Status.Snat, use)
	}
	h.mu.Unlock()
	for _, b := range health {
		r.Health = append(r.Health, wire.BackendHealthToProto(b))
	}
	_, err := h.client.ReportHost(context.Background(), r)
	return err
}

// holds are the ranges that the host has of a workload.
func (h *fakeHost) holds(key model.SNATKey) model.HostSNAT {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.snat[key]
}

func (h *fakeHost) set(silent bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.silent = silent
}

func (h *fakeHost) has(generation uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return uint64(h.generation) >= generation
}

// String shows the backends as the scenarios do.
func (h *fakeHost) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var lines []string
	for _, b := range h.backends {
		line := fmt.Sprintf("%s through %s: rewrite to %s", b.Endpoint, b.Tunnel, b.Backend)
		if b.HealthCheck != nil {
			line += fmt.Sprintf(", check by %s every %s", b.HealthCheck.Type, b.HealthCheck.Interval)
		}
		lines = append(lines, line+"\n")
	}
	slices.Sort(lines)
	sources := make([]string, 0, len(h.muxes))
	for _, p := range h.muxes {
		sources = append(sources, strings.TrimSuffix(strings.TrimSuffix(p.String(), "/32"), "/128"))
	}
	return strings.Join(lines, "") + fmt.Sprintf("accept from %v\n", sources)
}

func dial(t *testing.T, url string) *rpc.Client {
	client, err := rpc.NewClient(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// goFollow follows a stream until the test ends.
func goFollow[T any](
	t *testing.T, name string,
	open func(context.Context) (*connect.ServerStreamForClient[T], error), apply func(*T) error,
) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	log := logger(t).With("node", name)
	go func() { ended <- rpc.Follow(ctx, log, "tables", open, apply) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// eventually polls until done says so.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatalf("waited in vain until %s", what)
}
