package hardware

import (
	"fmt"
	"net/netip"
	"slices"

	limits "github.com/weirlb/weir/internal/model/hardware"
)

// entryMembers bounds the members that any driver looks at.
const entryMembers = 1 << 14

// Rows is how many rows of table ECMP the entry takes: the sum of its members' entries.
func (e Entry) Rows() uint32 {
	var rows uint64
	for _, m := range e.Members {
		rows += uint64(m.Entries)
	}
	return uint32(min(rows, 1<<32-1))
}

// Equal tells whether both are the same, order included.
func (e Entry) Equal(other Entry) bool {
	return e.VIP == other.VIP && e.Inner == other.Inner && e.Source == other.Source &&
		slices.Equal(e.Members, other.Members) && slices.Equal(e.Sources, other.Sources)
}

// Clone returns a copy that shares nothing with e.
func (e Entry) Clone() Entry {
	e.Members, e.Sources = slices.Clone(e.Members), slices.Clone(e.Sources)
	return e
}

// Validate returns a *Refusal of an entry that no switch takes.
func (e Entry) Validate() error {
	refuse := func(format string, args ...any) error {
		return &Refusal{VIP: e.VIP, Reason: fmt.Sprintf(format, args...)}
	}
	if !unicast(e.VIP) {
		return refuse("its address is not a unicast address")
	}
	if !unicast(e.Source) {
		return refuse("the outer source %s is not a unicast address", e.Source)
	}
	if e.Inner != (netip.Addr{}) && (!unicast(e.Inner) || e.Inner == e.VIP) {
		return refuse("what is inside is for %s, which is not another unicast address", e.Inner)
	}
	if err := e.validateSources(refuse); err != nil {
		return err
	}
	if len(e.Members) == 0 {
		return refuse("it has no members")
	}
	if len(e.Members) > entryMembers {
		return &Refusal{VIP: e.VIP, Table: Members, Need: uint32(min(len(e.Members), 1<<31)), Free: entryMembers}
	}
	seen := make(map[netip.Addr]bool, len(e.Members))
	for _, m := range e.Members {
		switch {
		case !unicast(m.Tunnel):
			return refuse("tunnel %s is not a unicast address", m.Tunnel)
		case m.Tunnel.Is4() != e.Source.Is4():
			return refuse("tunnel %s is not of the family of the outer source %s", m.Tunnel, e.Source)
		case m.Entries == 0:
			return refuse("member %s has no entry of the group", m.Tunnel)
		case seen[m.Tunnel]:
			return refuse("tunnel %s is there twice", m.Tunnel)
		case m.Tunnel == e.VIP:
			return refuse("tunnel %s leads back to it", m.Tunnel)
		}
		seen[m.Tunnel] = true
	}
	return nil
}

func (e Entry) validateSources(refuse func(format string, args ...any) error) error {
	if len(e.Sources) > limits.MaxSources {
		return refuse("it takes packets from %d outer sources, more than %d", len(e.Sources), limits.MaxSources)
	}
	for i, source := range e.Sources {
		switch {
		case !e.Inner.IsValid():
			return refuse("it has outer sources, and is no TIP")
		case !unicast(source) || source.Is4() != e.VIP.Is4():
			return refuse("outer source %s is not a unicast address of its family", source)
		case i > 0 && !e.Sources[i-1].Less(source):
			return refuse("outer source %s is not in order", source)
		}
	}
	return nil
}

func unicast(a netip.Addr) bool {
	return a.IsValid() && a.Zone() == "" && !a.Is4In6() && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() &&
		!a.IsLinkLocalUnicast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// Supports returns a *Refusal of an entry that is not within what the switch can do, whatever room its tables have.
func (c Capabilities) Supports(e Entry) error {
	if err := e.Validate(); err != nil {
		return err
	}
	if e.Source.Is4() && !c.Outer4 {
		return &Refusal{VIP: e.VIP, Reason: "the switch has no IPv4 tunnels"}
	}
	if e.Source.Is6() && !c.Outer6 {
		return &Refusal{VIP: e.VIP, Reason: "the switch has no IPv6 tunnels"}
	}
	if e.Inner.IsValid() && !c.TIPs {
		return &Refusal{VIP: e.VIP, Reason: "the switch takes off no outer header: it can have no TIP"}
	}
	if rows := e.Rows(); rows > c.MaxMembers {
		return &Refusal{VIP: e.VIP, Table: Members, Need: rows, Free: c.MaxMembers}
	}
	if c.Weights {
		return nil
	}
	for _, m := range e.Members {
		if m.Entries != 1 {
			return &Refusal{VIP: e.VIP, Reason: fmt.Sprintf("the switch has no weights, and %s has %d entries", m.Tunnel, m.Entries)}
		}
	}
	return nil
}
