package sonic_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/hardware/drivertest"
	"github.com/weirlb/weir/internal/hardware/sonic"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, config sonic.Config) *sonic.Driver {
	t.Helper()
	config.Network = "unix"
	d, err := sonic.New(config)
	must(t, err)
	return d
}

func TestDriver(t *testing.T) {
	for name, v6 := range map[string]bool{"IPv4 tunnels": false, "IPv6 tunnels": true} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, drivertest.Config{NoPackets: "there is no ASIC", New: func(t *testing.T, of drivertest.Limits) *drivertest.Switch {
				d := newDatabase(t)
				a, _ := startAgent(t, d, of, v6)
				config := sonic.Config{Address: d.socket, Hosts: of.Hosts, ECMP: of.ECMP, Tunnels: of.Tunnels, Members: of.Members}
				return &drivertest.Switch{
					Driver: open(t, config), Reopen: func() hardware.Driver { return open(t, config) },
					RemoveByHand: a.removeByHand, Reboot: a.reboot, PutForeign: a.putForeign, HasForeign: a.hasForeign,
					Port: d.port(),
				}
			}})
		})
	}
}

func entry(vip string, tunnels ...int) hardware.Entry {
	e := hardware.Entry{VIP: netip.MustParseAddr(vip), Source: drivertest.Source(false)}
	for _, n := range tunnels {
		e.Members = append(e.Members, hardware.Member{Tunnel: drivertest.Tunnel(false, n), Entries: 1})
	}
	return e
}

func wantEntries(t *testing.T, d *sonic.Driver, want ...hardware.Entry) {
	t.Helper()
	got, err := d.Read(t.Context())
	must(t, err)
	if len(got) != len(want) {
		t.Fatalf("the switch has %+v, want %+v", got, want)
	}
	for i := range want {
		if !got[i].Equal(want[i]) {
			t.Fatalf("the switch has %+v, want %+v", got, want)
		}
	}
}

// What the agent does not do, and nobody could know beforehand, is refused after a while, and the entry before is back.
func TestRefusedByTheAgent(t *testing.T) {
	db := newDatabase(t)
	a, _ := startAgent(t, db, limits{}, false)
	a.limits.Tunnels = 3 // which the driver does not know
	d := open(t, sonic.Config{Address: db.socket, Patience: time.Second})
	defer d.Close()
	one := entry("203.0.113.1", 3, 1, 2)
	must(t, d.Program(t.Context(), one))
	for _, e := range []hardware.Entry{entry("203.0.113.1", 1, 2, 3, 4), entry("203.0.113.2", 4)} {
		var refusal *hardware.Refusal
		if err := d.Program(t.Context(), e); !errors.As(err, &refusal) || refusal.Reason == "" {
			t.Fatalf("got %v, want a refusal with a reason", err)
		}
		wantEntries(t, d, one)
		if waits, _ := a.appl.SCard(t.Context(), table+"_KEY_SET").Result(); waits != 0 {
			t.Errorf("%d changes wait still", waits)
		}
	}
	if keys, _ := a.appl.Keys(t.Context(), "*203.0.113.2*").Result(); len(keys) != 0 {
		t.Errorf("what was refused is still in APPL_DB: %v", keys)
	}
}

// An agent that takes nothing is no refusal: the entry may come yet.
func TestAgentSleeps(t *testing.T) {
	db := newDatabase(t)
	a, _ := startAgent(t, db, limits{}, false)
	d := open(t, sonic.Config{Address: db.socket, Patience: 500 * time.Millisecond})
	defer d.Close()
	a.sleep(true)
	e := entry("203.0.113.1", 1, 2)
	err := d.Program(t.Context(), e)
	var refusal *hardware.Refusal
	if err == nil || errors.As(err, &refusal) {
		t.Fatalf("got %v, want an error that is no refusal", err)
	}
	wantEntries(t, d)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := d.Program(ctx, e); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, want that the context has ended", err)
	}
	a.sleep(false)
	a.take(t.Context())
	must(t, d.Program(t.Context(), e))
	wantEntries(t, d, e)
}

// The database goes and comes back empty while a change is on its way.
func TestDatabaseRestarts(t *testing.T) {
	db := newDatabase(t)
	_, stop := startAgent(t, db, limits{}, false)
	d := open(t, sonic.Config{Address: db.socket})
	defer d.Close()
	one, two := entry("203.0.113.1", 1, 2), entry("203.0.113.2", 3)
	must(t, d.Program(t.Context(), one))
	before, err := d.Boot(t.Context())
	must(t, err)
	stop()
	db.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	programmed := make(chan error, 1)
	go func() { programmed <- d.Program(ctx, two) }()
	db.start()
	startAgent(t, db, limits{}, false)
	if err := <-programmed; err != nil && !strings.Contains(err.Error(), "set it up") { // the VNET was not there yet
		t.Fatal(err)
	}
	must(t, d.Program(ctx, two))
	wantEntries(t, d, two)
	after, err := d.Boot(t.Context())
	must(t, err)
	if before == after {
		t.Error("the boot has not changed")
	}
}

func TestDatabaseIsAway(t *testing.T) {
	d := open(t, sonic.Config{Address: t.TempDir() + "/nobody.sock"})
	defer d.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := d.Program(ctx, entry("203.0.113.1", 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want that the context has ended", err)
	}
}

func TestNamesOfVNETs(t *testing.T) {
	for _, name := range []string{"a:b", "a|b", "*", "a b", strings.Repeat("a", 65)} {
		if _, err := sonic.New(sonic.Config{VNET: name}); err == nil {
			t.Errorf("%q is taken as a name", name)
		}
	}
}

// A VNET that is not set up as hosts want it is an error that says what to do.
func TestVNETIsNotSetUp(t *testing.T) {
	db := newDatabase(t)
	startAgent(t, db, limits{}, false)
	d := open(t, sonic.Config{Address: db.socket})
	defer d.Close()
	config := db.client(4)
	for name, spoil := range map[string]func() error{
		"vni":          func() error { return config.HSet(t.Context(), "VNET|"+vnet, "vni", "8000").Err() },
		"vxlan_tunnel": func() error { return config.HDel(t.Context(), "VNET|"+vnet, "vxlan_tunnel").Err() },
	} {
		must(t, spoil())
		if err := d.Program(t.Context(), entry("203.0.113.1", 1)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want an error that names %s", err, name)
		}
		must(t, config.HSet(t.Context(), "VNET|"+vnet, "vni", hardware.VXLANNetwork, "vxlan_tunnel", "tunnel").Err())
	}
	must(t, d.Program(t.Context(), entry("203.0.113.1", 1)))
}

func TestPorts(t *testing.T) {
	db := newDatabase(t)
	startAgent(t, db, limits{}, false)
	db.port()
	d := open(t, sonic.Config{Address: db.socket})
	defer d.Close()
	got, err := d.Ports(t.Context())
	must(t, err)
	want := []hardware.Port{
		{Name: "Ethernet0", MbitPerS: 100_000}, {Name: "Ethernet4", Up: true, MbitPerS: 100_000, Received: 1<<40 + 1500, Sent: 1507, Errors: 3007},
	}
	if !slices.Equal(got.All, want) {
		t.Errorf("got %+v, want %+v", got.All, want)
	}
}
