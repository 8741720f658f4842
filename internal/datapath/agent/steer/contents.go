package steer

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model/steering"
)

// contents are the VIPs that the tables hold.
type contents struct {
	vips    map[netip.Addr]steering.VIP
	takes   steering.Room
	sources map[netip.Addr]uses
}

// uses says how many VIPs an outer source is a switch of, and how many a host of.
type uses struct{ switches, hosts int }

func newContents() *contents {
	return &contents{vips: map[netip.Addr]steering.VIP{}, sources: map[netip.Addr]uses{}}
}

// role is what an outer source is to any of the VIPs; 0: nothing.
func (c *contents) role(source netip.Addr) bpf.AgentSteerRole {
	switch u := c.sources[source]; {
	case u.switches > 0:
		return bpf.AgentSteerRoleSTEER_SWITCH
	case u.hosts > 0:
		return bpf.AgentSteerRoleSTEER_HOST
	}
	return 0
}

// set has the VIP of an address be another one, or none.
func (c *contents) set(address netip.Addr, vip steering.VIP, there bool) {
	if was, had := c.vips[address]; had {
		c.takes = c.takes.Minus(was.Room())
		c.use(was, -1)
		delete(c.vips, address)
	}
	if there {
		c.takes = c.takes.Plus(vip.Room())
		c.use(vip, 1)
		c.vips[address] = vip
	}
}

func (c *contents) use(vip steering.VIP, by int) {
	for source, isSwitch := range vip.Sources() {
		u := c.sources[source]
		if isSwitch {
			u.switches += by
		} else {
			u.hosts += by
		}
		if c.sources[source] = u; u == (uses{}) {
			delete(c.sources, source)
		}
	}
}

// rows is how many there are of each table, or more: sources those of all VIPs too.
func (c *contents) rows() steering.Room {
	return c.takes.Plus(steering.Room{Sources: len(c.sources)})
}

// change is what becomes of some VIPs.
type change struct {
	before, after map[netip.Addr]steering.VIP
	roles         map[netip.Addr]bpf.AgentSteerRole // before, of their outer sources to any VIP
	rows          steering.Room                     // before, of all VIPs
}

// follow makes c what is wanted, but for VIPs of which there is no room: these stay as they are, or out. Those that are
// to be tried first are. Again has what did not change be written anew.
func (c *contents) follow(
	wanted map[netip.Addr]steering.VIP, room steering.Room, first, again func(steering.VIP) bool,
) (change, []steering.Refusal) {
	ch := change{
		before: map[netip.Addr]steering.VIP{}, after: map[netip.Addr]steering.VIP{},
		roles: map[netip.Addr]bpf.AgentSteerRole{}, rows: c.rows(),
	}
	var due, gone []steering.VIP
	for address, vip := range c.vips {
		if _, stays := wanted[address]; !stays {
			gone, ch.before[address] = append(gone, vip), vip
		}
	}
	for address, vip := range wanted {
		was, had := c.vips[address]
		if had && was.Equal(vip) && !again(vip) {
			continue
		}
		due = append(due, vip)
		if had {
			ch.before[address] = was
		}
	}
	for _, vips := range [][]steering.VIP{due, slices.Collect(maps.Values(ch.before))} {
		for _, vip := range vips {
			for source := range vip.Sources() {
				ch.roles[source] = c.role(source)
			}
		}
	}
	for _, vip := range gone {
		c.set(vip.Address, steering.VIP{}, false)
	}
	refused := c.replace(due, ch.before, room, first)
	for _, vip := range due {
		if now, there := c.vips[vip.Address]; there {
			ch.after[vip.Address] = now
		}
	}
	return ch, refused
}

// replace replaces VIPs by what is due, all if they fit together, else one after the other as far as there is room. It returns
// those that do not fit, by address.
func (c *contents) replace(
	due []steering.VIP, before map[netip.Addr]steering.VIP, room steering.Room, first func(steering.VIP) bool,
) (refused []steering.Refusal) {
	for _, vip := range due {
		c.set(vip.Address, vip, true)
	}
	if room.Lacks(c.rows()) == nil {
		return nil
	}
	back := func(vip steering.VIP) {
		was, had := before[vip.Address]
		c.set(vip.Address, was, had)
	}
	for _, vip := range due {
		back(vip)
	}
	slices.SortFunc(due, func(a, b steering.VIP) int {
		if f, g := first(a), first(b); f != g {
			return map[bool]int{true: -1, false: 1}[f]
		}
		return a.Address.Compare(b.Address)
	})
	for _, vip := range due {
		c.set(vip.Address, vip, true)
		if err := room.Lacks(c.rows()); err != nil {
			back(vip)
			refused = append(refused, steering.Refusal{VIP: vip.Address, Reason: err.Error()})
		}
	}
	slices.SortFunc(refused, func(a, b steering.Refusal) int { return a.VIP.Compare(b.VIP) })
	return refused
}
