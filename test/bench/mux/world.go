package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
)

type family string

const (
	v4 family = "v4"
	v6 family = "v6"
)

const (
	endpoints = 1000 // of each family; the packets go to the first
	backends  = 100  // of the endpoint measured
	buckets   = 16384
	listed    = 1_000_000 // prefixes of a list of sources; fewer where benches take turns
	maxFlows  = 4_000_000 // twice those of TCP and of UDP: then hardly a set has too many
)

// world is a data plane of the usual kind in a namespace of its own. The bench runs its harness
// on the same tables.
type world struct {
	ns       *netns.NS
	datapath *mux.Datapath
	pinPath  string
	listed   int // prefixes of a list of sources
	enlisted []link.Link
}

func newWorld(listed int) (*world, error) {
	w, err := openWorld(mux.Config{MaxFlows: maxFlows, MaxSources: 2 * (listed + 1), MaxNATSessions: maxFlows})
	if err != nil {
		return nil, err
	}
	w.listed = listed
	if err := w.fillWith(tables(listed), nil); err != nil {
		_ = w.Close()
		return nil, err
	}
	return w, nil
}

// openWorld opens a data plane without endpoints.
func openWorld(config mux.Config) (w *world, err error) {
	name := "weir-bench-" + strconv.Itoa(os.Getpid())
	w = &world{pinPath: filepath.Join("/sys/fs/bpf", name)}
	if w.ns, err = netns.Create(name); err != nil {
		return nil, err
	}
	config.Interface, config.PinPath, config.Mode = "lo", w.pinPath, mux.Generic
	err = w.ns.Do(func() error {
		w.datapath, err = mux.Open(config)
		return err
	})
	if err != nil {
		_ = w.Close()
		return nil, err
	}
	return w, nil
}

// forget has the mux remember no flow: endpoints that are made anew know none of those before.
func (w *world) forget() error {
	if err := w.datapath.Update(endpoint.Update{Snapshot: true}); err != nil {
		return err
	}
	if _, err := w.datapath.SweepFlows(); err != nil {
		return err
	}
	return w.fillWith(tables(w.listed), nil)
}

func (w *world) Close() error {
	var errs []error
	if w.datapath != nil {
		errs = append(errs, w.datapath.Unload())
	}
	return errors.Join(append(errs, w.ns.Delete())...)
}

// fillWith brings in the endpoints, whose ports are whose, a pool, and a hop for every host. Endpoints in auto are flooded.
func (w *world) fillWith(all []model.MuxEndpoint, snat []model.MuxSNAT) error {
	if err := w.datapath.SetSettings(poolOf()); err != nil {
		return err
	}
	if err := w.datapath.SetSYNSecrets(synSecrets()); err != nil {
		return err
	}
	if err := w.datapath.Update(endpoint.Update{Snapshot: true, Endpoints: all, SNAT: snat}); err != nil {
		return err
	}
	if err := w.flood(all); err != nil {
		return err
	}
	if err := attachNetwork(w.datapath); err != nil {
		return err
	}
	hops := map[netip.Addr]model.NextHop{}
	for _, tunnel := range w.datapath.Tunnels() {
		hops[tunnel] = testHop
	}
	return w.datapath.SetNextHops(hops)
}

// flood has the mux treat those that leave it to the mux as it does during a flood.
func (w *world) flood(all []model.MuxEndpoint) error {
	flooded := endpoint.SYNState{Answers: true, Watches: true}
	for _, e := range all {
		if e.SYNCookies != model.SYNCookiesAuto {
			continue
		}
		if err := w.datapath.SetSYNState(e.Key, flooded); err != nil {
			return err
		}
		if got := w.datapath.SYNStates()[e.Key]; got != flooded {
			return fmt.Errorf("endpoint %s is %+v, want %+v", e.Key, got, flooded)
		}
	}
	return nil
}

// tables are those that packets are measured with.
func tables(listed int) []model.MuxEndpoint {
	var all []model.MuxEndpoint
	for i := range endpoints {
		for _, vip := range []string{"203.0.113.0", "2001:db8:1::"} {
			for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
				all = append(all, newEndpoint(netip.MustParseAddr(vip), i, protocol, listed))
			}
		}
	}
	return all
}

var testHop = model.NextHop{Source: [6]byte{2, 1}, Destination: [6]byte{2, 2}}

func poolOf() pool.Settings {
	settings := pool.Settings{
		Source4: netip.MustParseAddr("172.16.0.1"), Source6: netip.MustParseAddr("fd00::1"), MTU: 1500,
		MAC: [6]byte{2, 0, 0, 0, 0, 2},
	}
	for i := range settings.HashKey {
		settings.HashKey[i] = byte(37*i + 11)
	}
	return settings
}

func synSecrets() (secrets []model.SYNSecret) {
	for id := range uint32(model.SYNSecrets) {
		secrets = append(secrets, model.SYNSecret{ID: id + 1, Secret: [16]byte{byte(id), 's', 'y', 'n'}})
	}
	return secrets
}

// Ports of the endpoints measured.
const (
	portCookies = 80 + iota
	portChained
	portListed  // of many prefixes in allow
	portLimited // never reaches its limits
	portAnswers // SYNs by cookies
	portFlooded // answers so because of a flood, and watches for its end
	portsMeasured
)

// newEndpoint is the i-th of a VIP, at port 80+i. Those measured have all the backends.
func newEndpoint(vip netip.Addr, i int, protocol model.Protocol, listed int) model.MuxEndpoint {
	e := model.MuxEndpoint{
		Key:     model.EndpointKey{VIP: vip, Protocol: protocol, Port: uint16(80 + i)},
		Cookies: model.CookiesOn, FlowLimit: maxFlows,
	}
	members, size := 2, 256
	switch e.Key.Port {
	case portListed:
		e.Allow = sources(vip.Is6(), listed)
	case portAnswers:
		e.SYNCookies = model.SYNCookiesAlways
	case portFlooded:
		e.SYNCookies = model.SYNCookiesAuto
	case portLimited:
		e.Limits = &model.Limits{Packets: model.MaxLimit, Bytes: model.MaxLimit, Connections: model.MaxLimit}
	}
	if e.Key.Port < portsMeasured {
		members, size = backends, buckets
	}
	for slot := range members {
		tunnel := netip.AddrFrom4([4]byte{10, 0, byte(slot >> 8), byte(slot)})
		if vip.Is6() {
			tunnel = netip.AddrFrom16([16]byte{0: 0xfd, 1: 1, 14: byte(slot >> 8), 15: byte(slot)})
		}
		e.Backends = append(e.Backends, model.MuxBackend{Slot: model.Slot(slot + 1), Tunnel: tunnel, Host: uint32(slot + 1)})
	}
	for bucket := range size {
		e.Buckets = append(e.Buckets, model.Slot(bucket%members+1))
		if e.Key.Port == portChained {
			e.Previous = append(e.Previous, model.Slot((bucket+1)%members+1))
		}
	}
	return e
}

// sources has all that packets come from in one prefix, and many longer ones in it, so that a look goes deep.
func sources(v6 bool, listed int) []netip.Prefix {
	around, at := netip.MustParsePrefix("24.0.0.0/8"), 0
	if v6 {
		around, at = netip.MustParsePrefix("2001:db8::1800:0/104"), 12
	}
	list := []netip.Prefix{around}
	r := rand.New(rand.NewPCG(1, 2))
	for range listed {
		bytes := around.Addr().AsSlice()
		binary.BigEndian.PutUint32(bytes[at:], binary.BigEndian.Uint32(bytes[at:])|r.Uint32()>>8)
		a, _ := netip.AddrFromSlice(bytes)
		list = append(list, netip.PrefixFrom(a, a.BitLen()))
	}
	return list
}

// harness is the bench's programs on the world's tables.
type harness struct {
	Mux           *ebpf.Program  `ebpf:"bench_mux"`
	Tagged        *ebpf.Program  `ebpf:"bench_tagged"`
	SYN           *ebpf.Program  `ebpf:"bench_syn"`
	VXLAN         *ebpf.Program  `ebpf:"bench_vxlan"`
	Handshake     *ebpf.Program  `ebpf:"bench_handshake"`
	VXLANFloor    *ebpf.Program  `ebpf:"vxlan_floor"`
	VXLANEmpty    *ebpf.Program  `ebpf:"vxlan_empty"`
	SYNFloor      *ebpf.Program  `ebpf:"bench_syn_floor"`
	SYNEmpty      *ebpf.Program  `ebpf:"bench_syn_empty"`
	Floor         *ebpf.Program  `ebpf:"bench_floor"`
	Pass          *ebpf.Program  `ebpf:"bench_pass"`
	Empty         *ebpf.Program  `ebpf:"bench_empty"`
	Generate      *ebpf.Program  `ebpf:"live_generate"`
	GenerateVXLAN *ebpf.Program  `ebpf:"live_generate_vxlan"`
	Ends          *ebpf.Program  `ebpf:"live_ends"`
	Sink          *ebpf.Program  `ebpf:"live_sink"`
	Reflect       *ebpf.Program  `ebpf:"live_reflect"`
	Bare          *ebpf.Program  `ebpf:"live_floor"`
	Whole         *ebpf.Program  `ebpf:"mux"`
	SlowpathProgs *ebpf.Map      `ebpf:"slowpath_progs"`
	Filter        *ebpf.Map      `ebpf:".data.flow_filter"`
	CookieAt      *ebpf.Variable `ebpf:"cookie_at"`
	Template      *ebpf.Variable `ebpf:"syn_template"`
	VXLANTemplate *ebpf.Variable `ebpf:"vxlan_template"`
	Sunk          *ebpf.Variable `ebpf:"sunk"`
	Repeats       *ebpf.Variable `ebpf:"repeats"`
	Requests      *ebpf.Variable `ebpf:"requests"`
}

func (h *harness) Close() {
	for _, p := range []*ebpf.Program{h.GenerateVXLAN, h.Ends, h.Handshake, h.Mux, h.Tagged, h.SYN, h.VXLAN, h.VXLANFloor, h.VXLANEmpty, h.SYNFloor, h.SYNEmpty, h.Floor, h.Pass, h.Empty, h.Generate, h.Sink, h.Reflect, h.Bare, h.Whole} {
		_ = p.Close()
	}
	_, _ = h.SlowpathProgs.Close(), h.Filter.Close()
}

// prepare gives the class its program.
func (h *harness) prepare(k *class, d *mux.Datapath) error {
	k.run, k.cookie, k.repeats, k.filter, k.datapath, k.handshake = h.Mux, h.CookieAt, h.Repeats, h.Filter, d, h.Handshake
	if k.writes() {
		k.template = h.Template
	}
	switch k.program {
	case benchProgBenchVxlan:
		k.run, k.template = h.VXLAN, h.VXLANTemplate
	case benchProgVxlanFloor:
		k.run, k.template = h.VXLANFloor, h.VXLANTemplate
	case benchProgVxlanEmpty:
		k.run, k.template = h.VXLANEmpty, h.VXLANTemplate
	case benchProgBenchTagged:
		k.run = h.Tagged
	case benchProgBenchSyn:
		k.run = h.SYN
	case benchProgBenchSynFloor:
		k.run = h.SYNFloor
	case benchProgBenchSynEmpty:
		k.run = h.SYNEmpty
	case benchProgBenchFloor:
		k.run = h.Floor
	case benchProgBenchPass:
		k.run = h.Pass
	case benchProgBenchEmpty:
		k.run = h.Empty
	}
	return nil
}

// writes says whether the harness writes the class's whole frame before each packet.
func (k *class) writes() bool {
	return slices.Contains([]string{
		benchProgBenchVxlan, benchProgVxlanFloor, benchProgVxlanEmpty, benchProgBenchSyn, benchProgBenchSynFloor, benchProgBenchSynEmpty,
	}, k.program)
}

const indexPerRow = 16

// load makes the harness for one family and number of flows; keep leaves packets as they come.
func (w *world) load(of family, flows int, keep bool) (*harness, error) {
	spec, err := loadBench()
	if err != nil {
		return nil, err
	}
	replacements := map[string]*ebpf.Map{}
	for object, table := range spec.Maps {
		pin := strings.TrimPrefix(object, ".data.")
		if pin == "syn" {
			pin = "syn_secrets"
		}
		if strings.HasPrefix(pin, ".") || object == benchMapSlowpathProgs {
			continue // the harness's own variables, and programs
		}
		pinned, err := ebpf.LoadPinnedMap(filepath.Join(w.pinPath, "live", pin), nil)
		if errors.Is(err, os.ErrNotExist) {
			continue // not a table: what the program tells user space
		}
		if err != nil {
			return nil, fmt.Errorf("open table %s: %w", pin, err)
		}
		defer pinned.Close()
		table.MaxEntries = pinned.MaxEntries()
		replacements[object] = pinned
	}
	for knob, value := range map[string]any{
		benchVarCfgFlowSetMask:       spec.Maps[benchMapFlows].MaxEntries - 1,
		benchVarCfgEndpointIndexMask: spec.Maps[benchMapEndpointIndex].MaxEntries*indexPerRow - 1,
		benchVarCfgFlows:             uint32(flows),
		benchVarCfgNatSetMask:        spec.Maps[benchMapSessionSets].MaxEntries - 1,
		benchVarCfgV6:                of == v6,
		benchVarCfgKeep:              keep,
	} {
		if err := spec.Variables[knob].Set(value); err != nil {
			return nil, fmt.Errorf("set %s: %w", knob, err)
		}
	}
	var h harness
	if err := spec.LoadAndAssign(&h, &ebpf.CollectionOptions{MapReplacements: replacements}); err != nil {
		return nil, fmt.Errorf("load harness: %w", err)
	}
	return &h, nil
}
