package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/netns"
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
	maxFlows  = 2_000_000 // of TCP and of UDP
)

// world is a data plane of the usual kind in a namespace of its own. The bench runs its harness
// on the same tables.
type world struct {
	ns       *netns.NS
	datapath *mux.Datapath
	pinPath  string
}

func newWorld() (w *world, err error) {
	name := "weir-bench-" + strconv.Itoa(os.Getpid())
	w = &world{pinPath: filepath.Join("/sys/fs/bpf", name)}
	if w.ns, err = netns.Create(name); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = w.Close()
		}
	}()
	err = w.ns.Do(func() error {
		w.datapath, err = mux.Open(mux.Config{
			Interface: "lo", PinPath: w.pinPath, Mode: mux.Generic, MaxFlows: maxFlows, MaxVIPFlows: 2 * maxFlows,
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return w, w.fill()
}

func (w *world) Close() error {
	var errs []error
	if w.datapath != nil {
		errs = append(errs, w.datapath.Unload())
	}
	return errors.Join(append(errs, w.ns.Delete())...)
}

func (w *world) fill() error {
	pool := mux.Pool{
		Source4: netip.MustParseAddr("172.16.0.1"), Source6: netip.MustParseAddr("fd00::1"), MTU: 1500,
	}
	for i := range pool.HashKey {
		pool.HashKey[i] = byte(37*i + 11)
	}
	if err := w.datapath.SetPool(pool); err != nil {
		return err
	}
	var all []model.MuxEndpoint
	for i := range endpoints {
		for _, vip := range []string{"203.0.113.0", "2001:db8:1::"} {
			all = append(all, newEndpoint(netip.MustParseAddr(vip), i, model.TCP), newEndpoint(netip.MustParseAddr(vip), i, model.UDP))
		}
	}
	if err := w.datapath.Replace(all); err != nil {
		return err
	}
	hops := map[netip.Addr]model.NextHop{}
	for _, tunnel := range w.datapath.Tunnels() {
		hops[tunnel] = model.NextHop{Source: [6]byte{2, 1}, Destination: [6]byte{2, 2}}
	}
	return w.datapath.SetNextHops(hops)
}

// newEndpoint is the i-th of a VIP: at port 80+i, the first with all the backends.
func newEndpoint(vip netip.Addr, i int, protocol model.Protocol) model.MuxEndpoint {
	e := model.MuxEndpoint{Key: model.EndpointKey{VIP: vip, Protocol: protocol, Port: uint16(80 + i)}, Cookies: model.CookiesOn}
	members, size := 2, 256
	if i == 0 {
		members, size = backends, buckets
	}
	for slot := range members {
		tunnel := netip.AddrFrom4([4]byte{10, 0, byte(slot >> 8), byte(slot)})
		if vip.Is6() {
			tunnel = netip.AddrFrom16([16]byte{0: 0xfd, 1: 1, 14: byte(slot >> 8), 15: byte(slot)})
		}
		e.Backends = append(e.Backends, model.MuxBackend{Slot: model.Slot(slot + 1), Tunnel: tunnel})
	}
	for bucket := range size {
		e.Buckets = append(e.Buckets, model.Slot(bucket%members+1))
	}
	return e
}

// harness is the bench's programs on the world's tables.
type harness struct {
	Mux   *ebpf.Program `ebpf:"bench_mux"`
	Floor *ebpf.Program `ebpf:"bench_floor"`
}

func (h *harness) Close() {
	_ = h.Mux.Close()
	_ = h.Floor.Close()
}

// load makes the harness for one family and number of flows; keep leaves packets as they come.
func (w *world) load(of family, flows int, keep bool) (*harness, error) {
	spec, err := loadBench()
	if err != nil {
		return nil, err
	}
	replacements := map[string]*ebpf.Map{}
	for object, table := range spec.Maps {
		pin := strings.TrimPrefix(object, ".data.")
		if strings.HasPrefix(pin, ".") {
			continue // the harness's own variables
		}
		pinned, err := ebpf.LoadPinnedMap(filepath.Join(w.pinPath, "live", pin), nil)
		if errors.Is(err, os.ErrNotExist) {
			continue // of a program that is not timed
		}
		if err != nil {
			return nil, fmt.Errorf("open table %s: %w", pin, err)
		}
		defer pinned.Close()
		table.MaxEntries = pinned.MaxEntries()
		replacements[object] = pinned
	}
	for knob, value := range map[string]any{
		benchVarCfgFlowSetMask: spec.Maps[benchMapFlows].MaxEntries - 1,
		benchVarCfgFlows:       uint32(flows),
		benchVarCfgV6:          of == v6,
		benchVarCfgKeep:        keep,
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
