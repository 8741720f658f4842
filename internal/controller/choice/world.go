package choice

import (
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/condition"
	"github.com/weirlb/weir/internal/desired/switchconfig"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/hardware"
	"github.com/weirlb/weir/internal/placechoice"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/traffic"
)

// view is what this leader has seen.
type view struct {
	silent map[string]time.Time // by switch, since when it has had no stream
	groups map[string]group     // by VIP
	meter  meter
	rooms  rooms

	sources sources
}

// group is what a switch would be told of a VIP, as of the generation of what it follows from.
type group struct {
	written model.Generation
	switchconfig.Group
	members []switchconfig.Member
}

func newView() view {
	return view{silent: map[string]time.Time{}, groups: map[string]group{}, meter: newMeter(), rooms: rooms{}}
}

// copy is a view that goes on from v, and leaves v as it is. It measures nothing.
func (v view) copy(now time.Time) view {
	v.silent, v.groups, v.rooms = maps.Clone(v.silent), maps.Clone(v.groups), v.rooms.clone()
	v.meter = meter{since: now, rates: v.meter.rates}
	return v
}

// world is what a choice is made of, or why none can be made.
func (c *Controller) world(s *store.State, now time.Time) (w placechoice.World, why string) {
	if c.view.silent == nil {
		c.view = newView()
	}
	for f := range s.Fabrics.Values() {
		w.Fabric = f.Network
	}
	switch {
	case s.Fabrics.Len() == 0:
		return w, "there is no fabric: apply one, with prefixes of racks"
	case w.Fabric == nil:
		return w, "this release can't read the fabric: apply it again"
	}
	w.Switches = c.switches(s, now)
	if len(w.Switches) == 0 {
		return w, "no switch of the fabric is connected"
	}
	maps.DeleteFunc(c.view.groups, func(name string, _ group) bool { return s.VIPs.At(name).Hardware == nil })
	c.view.meter.observe(s, c.Newest, now)
	for name := range s.Placements.Required() {
		vip := s.VIPs.At(name)
		seen := c.seeVIP(s, vip, now)
		seen.Required, seen.Split = vip.Hardware.Switches, vip.Hardware.Split
		for _, t := range vip.Hardware.TIPs {
			seen.Behind = append(seen.Behind, t.Switch)
		}
		w.VIPs = append(w.VIPs, seen)
	}
	for name := range s.Placements.Auto() {
		w.VIPs = append(w.VIPs, c.seeVIP(s, s.VIPs.At(name), now))
	}
	c.view.rooms.keep(s, w.VIPs)
	return w, ""
}

// switches are those of the fabric that take VIPs: they are registered and not drained, and have not been silent for long.
func (c *Controller) switches(s *store.State, now time.Time) map[string]placechoice.Switch {
	takes := map[string]placechoice.Switch{}
	for f := range s.Fabrics.Values() {
		for _, sw := range f.Network.Switches {
			node := s.Nodes.At(sw.Name)
			if node.Role != model.RoleSwitch || !node.Drained.IsZero() || sw.Down || c.isSilent(s, sw.Name, now) {
				continue
			}
			_, detail := c.Newest(s, node)
			p := detail.GetSwitch()
			is4 := func(a netip.Addr) bool { return a.Is4() }
			takes[sw.Name] = placechoice.Switch{
				Hosts: p.GetHosts().GetSize(), ECMP: p.GetEcmp().GetSize(), Tunnels: p.GetTunnels().GetSize(), Members: p.GetMembers(),
				Four: slices.ContainsFunc(node.Addresses, is4), Six: slices.ContainsFunc(node.Addresses, netip.Addr.Is6),
			}
		}
	}
	return takes
}

// isSilent says whether a switch has been without a stream for long, as this leader knows.
func (c *Controller) isSilent(s *store.State, name string, now time.Time) bool {
	since, silent := c.view.silent[name]
	switch {
	case s.Streams.At(name):
		delete(c.view.silent, name)
	case !silent:
		c.view.silent[name] = now
	default:
		return now.Sub(since) >= silentTime
	}
	return false
}

// bothFamilies is a node that has a source of each.
var bothFamilies = model.Node{Addresses: []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}}

// seeVIP is a VIP as it is placed.
func (c *Controller) seeVIP(s *store.State, vip model.VIP, now time.Time) placechoice.VIP {
	seen := placechoice.VIP{Name: vip.Name, Most: vip.Hardware.Spread}
	state, g := s.Placements.At(vip.Address), c.groupOf(s, vip)
	for _, m := range g.members {
		seen.Tunnels, seen.Rows = append(seen.Tunnels, m.Tunnel), seen.Rows+m.Entries
	}
	if seen.Unfit = g.Unfit(bothFamilies); seen.Unfit == "" {
		if obstacle := hardware.Obstacle(vip); obstacle != nil {
			seen.Unfit = obstacle.Error()
		}
	}
	for _, name := range state.Switches() {
		place := state.Places[name]
		onItsWay := place.Phase == placementpolicy.Preparing || place.Phase == placementpolicy.Programming
		out := place.Phase == placementpolicy.Evicted || place.Attempts > 0 && !place.Phase.Announced() ||
			(onItsWay || place.Unrouted) && now.Sub(place.Since) >= stuckTime
		if out && place.Host == "" { // what a host does not steer it steers from no other switch
			seen.Avoid = append(seen.Avoid, name)
		}
		if (place.Phase.Held() || place.Phase == placementpolicy.Removing) && !slices.Contains(state.Chosen, name) {
			seen.Held = append(seen.Held, name)
		}
	}
	seen.Chosen, seen.Moves = state.Chosen, state.Moves()
	seen.Rate, seen.Measured = c.view.meter.rate(vip.Address)
	all, shares := c.view.sources.of(vip.Address, seen.Rate)
	switch {
	case len(shares) > 0 || all > seen.Rate:
		seen.Rate, seen.Sources, seen.Measured = all, shares, true
	case !seen.Measured || serves(state): // muxes do not see what switches serve
		seen.Rate, seen.Measured = traffic.Rate(state.KbitPerS), state.KbitPerS > 0
	}
	return seen
}

// serves says whether a switch serves the VIP.
func serves(state placementpolicy.State) bool {
	for _, p := range state.Places {
		if p.Phase.Announced() {
			return true
		}
	}
	return false
}

func (c *Controller) groupOf(s *store.State, vip model.VIP) group {
	written := condition.GenerationOf(s, vip)
	g, known := c.view.groups[vip.Name]
	if !known || g.written != written {
		of := switchconfig.GroupOf(s.State, vip)
		g = group{written, of, of.Members(0)}
		c.view.groups[vip.Name] = g
	}
	return g
}

// signature is a hash of all that leads to another choice at once: traffic and where VIPs are do not.
func signature(w placechoice.World) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%p", w.Fabric)
	for _, s := range w.Fabric.Switches {
		device, takes := w.Switches[s.Name]
		fmt.Fprintln(h, device, takes)
	}
	for _, vip := range w.VIPs {
		fmt.Fprintln(h, vip.Name, vip.Required, vip.Split, vip.Behind, vip.Most, vip.Tunnels, vip.Rows, vip.Unfit, vip.Avoid)
	}
	return h.Sum64()
}
