// Package announce decides which routes a mux announces for the VIPs that it forwards, and has the speaker announce
// them (docs/design/bgp.md).
package announce

import (
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/weirlb/weir/internal/bgp"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/telemetry"
)

// Speaker announces routes.
type Speaker interface {
	Announce([]bgp.Route) error // the full set
	AnnounceMACs([]bgp.MACRoute) error
}

// Config configures an Announcer.
type Config struct {
	// Aggregates are announced instead of routes to single VIPs, each while a VIP lies in it. None: a route for every VIP.
	Aggregates []netip.Prefix
	// NATPrefixes are announced as long as the mux forwards: what answers come to.
	NATPrefixes []netip.Prefix
	// Neighbors are prefixes of VIPs that ARP and NDP are answered for, beside or instead of routes.
	Neighbors     []netip.Prefix
	OverridesFile string // keeps the route overrides over restarts; empty: they are not kept
	Speaker       Speaker
	// Discard makes the prefixes of announced VIPs all whose packets the kernel drops, if they get to it.
	Discard func([]netip.Prefix) error
	Log     *slog.Logger
}

// Reach is what is known of the next hops to the hosts.
type Reach struct {
	Tried bool // each next hop was resolved or failed
	None  bool // all have failed: the mux would attract traffic and drop it
}

// Announcer announces the VIPs that are forwarded, unless the manager says otherwise.
type Announcer struct {
	config Config

	mu               sync.Mutex
	vips             map[netip.Addr]bool // that are forwarded and stay
	overlay          Overlay             // likewise
	reach            Reach
	announced        map[netip.Addr]bool // VIPs
	overlayAnnounced Overlay
	overrides        overrides
	excluded         bool // out of the pool: nothing is announced until the manager says otherwise
	stopped          bool // nothing is announced any more
	warnings         []string
}

// New returns an announcer that has read the overrides of the process before.
func New(config Config) *Announcer {
	return &Announcer{config: config, overrides: loadOverrides(config.OverridesFile, config.Log)}
}

// Adopt announces what was announced before the restart, and is forwarded: VIPs, and addresses that hosts of virtual
// networks send VXLAN to.
func (a *Announcer) Adopt(vips map[netip.Addr]bool, overlay []netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.vips, a.announced = vips, vips
	a.overlay = Overlay{Addresses: overlay}
	a.overlayAnnounced = a.overlay
	a.announce()
}

// Set announces the VIPs whose backends are reachable, and the overlay of virtual networks. What was announced stays so
// while it is among them and the mux reaches any host at all.
func (a *Announcer) Set(vips map[netip.Addr]bool, overlay Overlay, reach Reach) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.vips, a.overlay, a.reach = vips, overlay, reach
	a.announce()
}

// SetExcluded withdraws all routes, or announces them again. Packets that still arrive are forwarded.
func (a *Announcer) SetExcluded(out bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.excluded == out {
		return
	}
	a.excluded = out
	a.announce()
}

// SetOverrides replaces the overrides. It is for one goroutine.
func (a *Announcer) SetOverrides(list []model.VIPRoute) {
	next := newOverrides(list)
	if !a.override(next) {
		return
	}
	// Without the lock, for which who renews a lease waits, as a disk may take long.
	if err := next.save(a.config.OverridesFile); err != nil {
		a.config.Log.Warn("can't keep which vips are not announced as usual, for the next start", "err", err)
	}
}

// override announces by other overrides, and says whether they are others.
func (a *Announcer) override(next overrides) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if next.equal(a.overrides) {
		return false
	}
	next.logChanges(a.overrides, a.config.Log)
	a.overrides = next
	a.announce()
	return true
}

// Stop withdraws all routes for the rest of the process, but those that answers of sessions come by: End withdraws these.
func (a *Announcer) Stop() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	return errors.Join(a.config.Speaker.AnnounceMACs(nil), a.config.Speaker.Announce(a.natRoutes()))
}

// End withdraws all routes.
func (a *Announcer) End() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	return a.config.Speaker.Announce(nil)
}

func (a *Announcer) natRoutes() (routes []bgp.Route) {
	for _, prefix := range a.config.NATPrefixes {
		routes = append(routes, bgp.Plain(prefix))
	}
	return routes
}

// Announced are those of vips that are announced.
func (a *Announcer) Announced(vips map[netip.Addr]bool) map[netip.Addr]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	announced := maps.Clone(vips)
	maps.DeleteFunc(announced, func(vip netip.Addr, _ bool) bool { return !a.announced[vip] })
	return announced
}

// Serving are the VIPs that the mux forwards for, and whose routes no overload action takes back; false: it is to attract
// nothing, or knows no VIPs yet.
func (a *Announcer) Serving() (map[netip.Addr]bool, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped || a.excluded || a.reach.None || !a.reach.Tried && len(a.announced) == 0 {
		return nil, false
	}
	serving := maps.Clone(a.announced)
	maps.DeleteFunc(serving, func(vip netip.Addr, _ bool) bool { return a.overrides[vip].Withdrawn })
	return serving, true
}

// announce computes the routes. The lock is held.
func (a *Announcer) announce() {
	if a.stopped {
		return
	}
	vips := maps.Clone(a.vips)
	maps.DeleteFunc(vips, func(vip netip.Addr, _ bool) bool { return !a.announced[vip] && !a.reach.Tried })
	overlay := a.announceable()
	a.announced, a.overlayAnnounced = vips, overlay
	usual, warnings := a.prefixes(slices.SortedFunc(maps.Keys(vips), netip.Addr.Compare))
	usual = append(usual, overlay.prefixes()...)
	usual = append(usual, a.config.NATPrefixes...)
	if err := a.config.Discard(usual); err != nil {
		warnings = append(warnings, err.Error())
	}
	routes, more := a.routes(vips)
	warnings = append(append(warnings, more...), a.undiverted(vips)...)
	for _, prefix := range overlay.prefixes() {
		routes = append(routes, bgp.Plain(prefix))
	}
	attached := overlay.Attached
	if a.reach.None {
		routes, attached = nil, nil
		warnings = append(warnings, "no host can be reached: no VIP is announced until one can")
	}
	if a.excluded {
		routes, attached = nil, nil
		warnings = append(warnings,
			"out of the pool, as this mux did not answer the manager in time: no VIP is announced until it is current")
	}
	routes = append(routes, a.natRoutes()...)
	for _, err := range []error{a.config.Speaker.Announce(routes), a.config.Speaker.AnnounceMACs(attached)} {
		if err != nil {
			warnings = append(warnings, reasons(err)...)
		}
	}
	a.warnings = warnings
}

// Warnings are for operators, one line each.
func (a *Announcer) Warnings() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.warnings)
}

// reasons are the errors that err joins, one line each.
func reasons(err error) []string {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return []string{err.Error()}
	}
	var lines []string
	for _, e := range joined.Unwrap() {
		lines = append(lines, e.Error())
	}
	return lines
}

// Sample puts the metric of announced VIPs.
func (a *Announcer) Sample(to *telemetry.Sample) {
	a.mu.Lock()
	defer a.mu.Unlock()
	telemetry.Put(to, "weir_mux_vips_announced", len(a.announced))
}
