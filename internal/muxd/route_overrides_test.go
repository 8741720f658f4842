package muxd

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/wire"
)

var (
	scrubbed = model.VIPRoute{VIP: key(10).VIP, Action: model.ActionScrub, NextHop: addr("10.0.9.2"), Communities: []model.Community{{Admin: 64999, Value: 911}}}
	withheld = model.VIPRoute{VIP: key(11).VIP, Action: model.ActionBlackhole, Withdrawn: true}
)

// VIPs that are sent elsewhere are announced so, before the tables change and though they are refused; packets that
// still come are forwarded, and discarded by the kernel if they get to it. A mux that starts again goes on with it.
func TestVIPsThatAreNotAnnouncedAsUsual(t *testing.T) {
	file := filepath.Join(t.TempDir(), "data", "routes")
	kept := func(c *Config) { c.RoutesFile = file }
	vips := []model.MuxEndpoint{endpoint(key(10), "10.2.0.1"), endpoint(key(11), "10.2.0.1"), endpoint(key(12), "10.2.0.1")}
	b := newBench(t, kept, vips...)
	b.hops.changed(resolved("10.2.0.1"))
	b.take()
	const asUsual = "[203.0.113.10/32 203.0.113.11/32 203.0.113.12/32]"
	const overridden = "[203.0.113.10/32 via 10.0.9.2 with [64999:911] 203.0.113.12/32]"
	b.datapath.full = fmt.Errorf("no room")
	if err := b.apply(wire.MuxUpdate{Generation: 8, Routes: []model.VIPRoute{scrubbed, withheld}}); err == nil {
		t.Fatal("a full data plane took an update")
	}
	b.did("announce "+overridden, "apply +0 -0")
	if b.discarded != asUsual {
		t.Errorf("the kernel discards %s", b.discarded)
	}
	b.datapath.full = nil

	again := newBench(t, kept, vips...)
	if again.speaker.announced != overridden {
		t.Errorf("after a restart: announced %s", again.speaker.announced)
	}
	if err := again.apply(wire.MuxUpdate{Generation: 9, Routes: []model.VIPRoute{scrubbed}}); err != nil {
		t.Fatal(err)
	}
	if got := again.speaker.announced; got != "[203.0.113.10/32 via 10.0.9.2 with [64999:911] 203.0.113.11/32 203.0.113.12/32]" {
		t.Errorf("without the black hole: %s", got)
	}
	if err := again.apply(wire.MuxUpdate{Generation: 10}); err != nil {
		t.Fatal(err)
	}
	if again.speaker.announced != asUsual {
		t.Errorf("at the end: %s", again.speaker.announced)
	}
	if last := newBench(t, kept, vips...); last.speaker.announced != asUsual {
		t.Errorf("after a restart at the end: %s", last.speaker.announced)
	}
	if err := os.WriteFile(file, []byte("[{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if broken := newBench(t, kept, vips...); broken.speaker.announced != asUsual {
		t.Errorf("with a broken file: %s", broken.speaker.announced)
	}
}

// What is announced for one VIP goes beside its aggregate. One that is only taken back is still reached by it.
func TestOverriddenVIPsOfAggregates(t *testing.T) {
	aggregate := func(c *Config) { c.Routes.Aggregates = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")} }
	b := newBench(t, aggregate, endpoint(key(10), "10.2.0.1"), endpoint(key(11), "10.2.0.1"))
	if err := b.apply(wire.MuxUpdate{Generation: 8, Routes: []model.VIPRoute{scrubbed, withheld}}); err != nil {
		t.Fatal(err)
	}
	if got := b.speaker.announced; got != "[203.0.113.0/24 203.0.113.10/32 via 10.0.9.2 with [64999:911]]" {
		t.Errorf("announced %s", got)
	}
	if got := strings.Join(b.mux.tables.allWarnings(), "\n"); !strings.Contains(got, "VIP 203.0.113.11 is to be black-holed, but aggregate 203.0.113.0/24 still brings its packets: give its pool a blackhole") {
		t.Errorf("warnings:\n%s", got)
	}
	if err := b.apply(wire.MuxUpdate{Generation: 9, Removed: []model.EndpointKey{key(10)}, Routes: []model.VIPRoute{withheld}}); err != nil {
		t.Fatal(err)
	}
	if b.speaker.announced != "[]" || len(b.mux.tables.allWarnings()) != 0 {
		t.Errorf("the last VIP of an aggregate: announced %s: %q", b.speaker.announced, b.mux.tables.allWarnings())
	}
}
