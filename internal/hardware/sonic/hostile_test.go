package sonic_test

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/hardware/sonic"
)

// cutter passes connections to a database on and cuts each after so many bytes of answers.
func cutter(t *testing.T, to string) (socket string, cuts *atomic.Int64) {
	t.Helper()
	cuts = &atomic.Int64{}
	socket = filepath.Join(t.TempDir(), "cut.sock")
	listener, err := net.Listen("unix", socket)
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for n := int64(0); ; n++ {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go cut(from, to, 60+n*397%5000, cuts)
		}
	}()
	return socket, cuts
}

func cut(from net.Conn, to string, after int64, cuts *atomic.Int64) {
	defer from.Close()
	database, err := net.Dial("unix", to)
	if err != nil {
		return
	}
	defer database.Close()
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			if _, err := database.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 4096)
	for passed := int64(0); ; {
		n, err := database.Read(buffer)
		if err != nil {
			return
		}
		if passed += int64(n); passed > after {
			cuts.Add(1) // the command was done, and its answer is lost
			return
		}
		if _, err := from.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// The database is lost again and again, between commands and before answers.
func TestConnectionsAreCut(t *testing.T) {
	db := newDatabase(t)
	startAgent(t, db, limits{}, false)
	socket, cuts := cutter(t, db.socket)
	d, clean := open(t, sonic.Config{Address: socket}), open(t, sonic.Config{Address: db.socket})
	defer d.Close()
	defer clean.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	entries := []hardware.Entry{entry("203.0.113.1", 1, 2, 3), entry("203.0.113.1", 4, 5), entry("203.0.113.1", 5, 1, 6, 7)}
	for i := 0; i < 12 || cuts.Load() < 10; i++ {
		e := entries[i%len(entries)]
		must(t, d.Program(ctx, e))
		wantEntries(t, clean, e)
	}
	must(t, d.Remove(ctx, entries[0].VIP))
	wantEntries(t, clean)
}

// What others write into the databases is bounded, and is no entry.
func TestHostileDatabase(t *testing.T) {
	db := newDatabase(t)
	a, _ := startAgent(t, db, limits{}, false)
	d := open(t, sonic.Config{Address: db.socket, Patience: 2 * time.Second})
	defer d.Close()
	kept := entry("203.0.113.1", 1, 2)
	must(t, d.Program(t.Context(), kept))
	ctx := t.Context()
	key := func(vip string) (appl, state string) {
		return table + ":" + vnet + ":" + vip, table + "|" + vnet + "|" + vip
	}
	for vip, endpoint := range map[string]string{
		"203.0.113.2/32": strings.Repeat("10.0.0.1,", 1<<20), "203.0.113.3/32": "10.0.0.1,10.0.0.x", "203.0.113.4/24": "10.0.0.1",
		"0203.0.113.5/32": "10.0.0.1", "x": "10.0.0.1", "": "10.0.0.1", "203.0.113.6/32": "fe80::1%eth0",
		"203.0.113.7/32": "\x00\xff", strings.Repeat("9", 1<<16): "10.0.0.1",
	} {
		appl, state := key(vip)
		must(t, a.appl.HSet(ctx, appl, "endpoint", endpoint).Err())
		must(t, a.state.HSet(ctx, state, "state", "active", "active_endpoints", endpoint).Err())
	}
	appl, state := key("203.0.113.8/32")
	must(t, a.appl.Set(ctx, appl, "no hash", 0).Err())
	must(t, a.state.RPush(ctx, state, "no hash").Err())
	wantEntries(t, d, kept)
	_, err := d.Capabilities(ctx)
	must(t, err)
	must(t, a.appl.Set(ctx, "PORT_TABLE:Ethernet9", "no hash", 0).Err())
	must(t, a.monitor.RPush(ctx, "COUNTERS_PORT_NAME_MAP", "no hash").Err())
	for i := range 3000 {
		must(t, a.appl.HSet(ctx, "PORT_TABLE:Ethernet"+strings.Repeat("1", i), "oper_status", "up", "speed", "-1").Err())
	}
	must(t, a.appl.HSet(ctx, "LLDP_ENTRY_TABLE:Ethernet1", "lldp_rem_sys_name", strings.Repeat("\x1b", 1<<10)).Err())
	ports, err := d.Ports(ctx)
	must(t, err)
	if len(ports.All) > hardware.MaxPorts || slices.ContainsFunc(ports.All, func(p hardware.Port) bool { return strings.Contains(p.Neighbour, "\x1b") || p.MbitPerS != 0 }) {
		t.Errorf("got %+v", ports)
	}
	must(t, a.monitor.HSet(ctx, "CRM:STATS", "crm_stats_ipv4_route_available", "-1e99").Err())
	other := entry("203.0.113.9", 3)
	must(t, d.Program(ctx, other))
	wantEntries(t, d, kept, other)
}

// CONFIG_DB may be saved: what is there would come back after a reboot.
func TestConfigIsNotWritten(t *testing.T) {
	db := newDatabase(t)
	startAgent(t, db, limits{}, false)
	config := db.client(4)
	before, err := config.Keys(t.Context(), "*").Result()
	must(t, err)
	must(t, config.ConfigSet(t.Context(), "notify-keyspace-events", "KEA").Err())
	events := config.PSubscribe(t.Context(), "__keyspace@4__:*")
	defer events.Close()
	_, err = events.Receive(t.Context())
	must(t, err)
	d := open(t, sonic.Config{Address: db.socket})
	defer d.Close()
	must(t, d.Program(t.Context(), entry("203.0.113.1", 1, 2)))
	must(t, d.Remove(t.Context(), entry("203.0.113.1").VIP))
	select {
	case event := <-events.Channel():
		t.Errorf("%s: %s", event.Channel, event.Payload)
	default:
	}
	if after, err := config.Keys(t.Context(), "*").Result(); err != nil || len(after) != len(before) {
		t.Errorf("CONFIG_DB has %v, had %v (%v)", after, before, err)
	}
}
