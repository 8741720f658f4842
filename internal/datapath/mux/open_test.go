package mux

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// place is a namespace with an interface and a pin path.
type place struct {
	ns, peer *netns.NS // each with an eth0, joined
	config   Config
}

func newPlace(t *testing.T) place {
	t.Helper()
	name := "weir-muxdp-" + strconv.Itoa(os.Getpid())
	ns, peer := netns.New(t, name), netns.New(t, name+"-peer")
	if err := netns.Veth(ns, "eth0", peer, "eth0"); err != nil {
		t.Fatal(err)
	}
	if err := ns.SetMAC("eth0", testMAC); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("/sys/fs/bpf", name)
	t.Cleanup(func() { _ = Unload(path) })
	return place{ns, peer, Config{
		Interface: "eth0", PinPath: path,
		MaxEndpoints: 64, MaxBuckets: 8192, MaxBackends: 1024, MaxFlows: 1024,
	}}
}

// open opens the data plane in the namespace; the caller closes it.
func (p place) open() (d *Datapath, err error) {
	inside := p.ns.Do(func() error {
		d, err = Open(p.config)
		return err
	})
	return d, inside
}

func (p place) mustOpen(t *testing.T) *Datapath {
	t.Helper()
	d, err := p.open()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func programID(t *testing.T, d *Datapath) uint32 {
	t.Helper()
	info, err := d.link.Info()
	if err != nil {
		t.Fatal(err)
	}
	return uint32(info.Program)
}

func TestRestartDisturbsNothing(t *testing.T) {
	p := newPlace(t)
	d := p.mustOpen(t)
	if err := d.SetSettings(testSettings()); err != nil {
		t.Fatal(err)
	}
	if err := d.SetGeneration(42); err != nil {
		t.Fatal(err)
	}
	all := []model.MuxEndpoint{newEndpoint(vip4, model.TCP, tunnel4, tunnel6), newEndpoint(vip6, model.UDP, tunnel6)}
	if err := d.Replace(all); err != nil {
		t.Fatal(err)
	}
	resolve(t, d)
	chosen(t, d, pkt.TCP(client4, vip4, pkt.SYN))
	before, id := resolveTables(t, d), programID(t, d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}

	d = p.mustOpen(t)
	defer d.Close()
	if got := programID(t, d); got != id {
		t.Errorf("program %d is attached, want %d as before", got, id)
	}
	if diff := cmp.Diff(before, resolveTables(t, d), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, model.EndpointKey{})); diff != "" {
		t.Errorf("tables (-before +after):\n%s", diff)
	}
	if pool, err := d.Settings(); err != nil || pool != testSettings() {
		t.Errorf("pool is %+v, error %v", pool, err)
	}
	if generation, err := d.Generation(); err != nil || generation != 42 {
		t.Errorf("generation is %d, error %v, want 42", generation, err)
	}
	if keys, err := d.Endpoints(); err != nil || len(keys) != 2 {
		t.Errorf("endpoints are %v, error %v", keys, err)
	}
	// The allocators know what is in use: new endpoints do not overwrite the old.
	other := newEndpoint("203.0.113.12:80", model.TCP, tunnel4)
	if err := d.Replace(append(all, other)); err != nil {
		t.Fatal(err)
	}
	chosen(t, d, pkt.TCP(client4, vip4, pkt.SYN))
	want := map[string]uint64{"TCP 203.0.113.10:80": 2, "TCP 203.0.113.12:80": 0, "UDP [2001:db8:1::10]:80": 0}
	if diff := cmp.Diff(want, endpointPackets(t, d)); diff != "" {
		t.Errorf("endpoint counters (-want +got):\n%s", diff)
	}
}

func TestInspectReadsBesideTheOwner(t *testing.T) {
	p := newPlace(t)
	if _, err := Inspect(p.config.PinPath); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("inspect with nothing loaded: error %v", err)
	}
	d := p.mustOpen(t)
	defer d.Close()
	e := newEndpoint(vip4, model.TCP, tunnel4, tunnel6)
	e.Cookies, e.Ping, e.FlowLimit = model.CookiesSettling, true, 77
	if err := d.Replace([]model.MuxEndpoint{e}); err != nil {
		t.Fatal(err)
	}
	resolve(t, d)
	var status *Status
	err := p.ns.Do(func() (err error) {
		status, err = Inspect(p.config.PinPath)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if status.Interface != "eth0" || string(status.Mode) != d.Mode() || d.Mode() != "native" {
		t.Errorf("attached to %s in mode %s, the owner says %s", status.Interface, status.Mode, d.Mode())
	}
	want := []EndpointStatus{{
		Key: model.EndpointKey{VIP: netip.MustParseAddr("203.0.113.10"), Protocol: model.TCP, Port: 80}, Buckets: 256,
		Settings: endpoint.Settings{Cookies: model.CookiesSettling, Ping: true, IdleTimeout: model.DefaultIdleTCP, FlowLimit: 77},
		Backends: []BackendStatus{
			{Slot: 1, Tunnel: netip.MustParseAddr(tunnel4), Buckets: 128, NextHop: testHop},
			{Slot: 2, Tunnel: netip.MustParseAddr(tunnel6), Buckets: 128, NextHop: testHop},
		},
	}}
	if diff := cmp.Diff(want, status.Endpoints, cmpopts.EquateComparable(netip.Addr{}), cmpopts.IgnoreFields(EndpointStatus{}, "Digest")); diff != "" {
		t.Errorf("endpoints (-want +got):\n%s", diff)
	}
}

func TestOpenRefuses(t *testing.T) {
	p := newPlace(t)
	d := p.mustOpen(t)
	refused := func(want string, change func(*Config)) {
		t.Helper()
		other := p
		change(&other.config)
		second, err := other.open()
		if err == nil {
			_ = second.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
	refused("is in use by another process", func(*Config) {})
	_ = d.Close()
	refused("weir-mux unload", func(c *Config) { c.Interface = "lo" })
	refused(`find interface "eth9"`, func(c *Config) { c.Interface = "eth9" })
	refused("is not on a bpffs", func(c *Config) { c.PinPath = t.TempDir() })
}

func TestUnloadLeavesNothing(t *testing.T) {
	p := newPlace(t)
	d := p.mustOpen(t)
	_ = d.Close()
	if err := Unload(p.config.PinPath); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.config.PinPath); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("pin path is still there: %v", err)
	}
	d = p.mustOpen(t) // would fail with a program attached
	if err := d.Unload(); err != nil {
		t.Fatal(err)
	}
	if err := Unload(p.config.PinPath); err != nil {
		t.Errorf("unload with nothing loaded: %v", err)
	}
}

func TestReplacedInterfaceIsAttachedAgain(t *testing.T) {
	p := newPlace(t)
	d := p.mustOpen(t)
	if err := d.Replace([]model.MuxEndpoint{newEndpoint(vip4, model.TCP, tunnel4)}); err != nil {
		t.Fatal(err)
	}
	_ = d.Close()
	if err := p.ns.DeleteLink("eth0"); err != nil {
		t.Fatal(err)
	}
	peer := netns.New(t, "weir-muxdp-"+strconv.Itoa(os.Getpid())+"-new")
	if err := netns.Veth(p.ns, "eth0", peer, "eth0"); err != nil {
		t.Fatal(err)
	}
	d = p.mustOpen(t)
	defer d.Close()
	if keys, err := d.Endpoints(); err != nil || len(keys) != 1 {
		t.Errorf("endpoints are %v, error %v, want the one from before", keys, err)
	}
	if programID(t, d) == 0 {
		t.Error("no program is attached")
	}
}
