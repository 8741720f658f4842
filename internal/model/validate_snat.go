package model

import (
	"fmt"
	"net/netip"
)

// Bounds of the lists of SNAT.
const (
	MaxWorkloads = 4096
	MaxReserved  = 256
	MaxExcept    = 64
)

// validate holds that what a VIP says of source NAT, with its defaults, makes sense.
func (s SNAT) validate(v *validator, vip VIP) {
	for i, e := range vip.Endpoints {
		if e.Port == AllPorts {
			v.refuse(fmt.Sprintf("endpoints[%d].port", i), "must not be all ports, as the VIP has snat, whose answers need some")
		}
	}
	s.validateWorkloads(v, vip)
	s.validatePorts(v)
	if s.RequestRate < 1 || s.RequestRate > MaxRequestRate {
		v.refuse("snat.requestRate", "must be 1 to %d, is %d", MaxRequestRate, s.RequestRate)
	}
	if len(s.Except) > MaxExcept {
		v.refuse("snat.except", "must be at most %d, are %d", MaxExcept, len(s.Except))
	}
	for i, p := range s.Except {
		field := fmt.Sprintf("snat.except[%d]", i)
		switch {
		case !p.IsValid():
			v.refuse(field, "must be a prefix such as 10.0.0.0/8")
		case p.Addr().Is4In6():
			v.refuse(field, "must be written as IPv4, is %s", p)
		case p != p.Masked():
			v.refuse(field, "must have no bits set behind its length, is %s", p)
		}
	}
	switch s.Filtering {
	case FilterAddressAndPort, FilterAddress, FilterNone:
	default:
		v.refuse("snat.filtering", "must be %s, %s or %s, is %.64q", FilterAddressAndPort, FilterAddress, FilterNone, string(s.Filtering))
	}
	oneOf(v, "snat.exhausted", s.Exhausted, ExhaustedReject, ExhaustedDrop)
	if s.IdleTimeout < MinIdle || s.IdleTimeout > MaxIdle {
		v.refuse("snat.idleTimeout", "must be %s to %s, is %s", MinIdle, MaxIdle, s.IdleTimeout)
	}
}

func (s SNAT) validateWorkloads(v *validator, vip VIP) {
	switch n := len(s.Workloads); {
	case n == 0:
		v.refuse("snat.workloads", "must have at least one")
	case n > MaxWorkloads:
		v.refuse("snat.workloads", "must be at most %d, are %d", MaxWorkloads, n)
	}
	first := make(map[netip.Addr]int, len(s.Workloads))
	for i, w := range s.Workloads {
		path := fmt.Sprintf("snat.workloads[%d]", i)
		v.address(path+".address", w.Address)
		switch j, taken := first[w.Address]; {
		case !w.Address.IsValid():
		case taken:
			v.refuse(path+".address", "is %s again, as snat.workloads[%d]", w.Address, j)
		default:
			first[w.Address] = i
		}
		v.familyOf(path+".address", vip, w.Address)
		if w.Address == vip.Address && vip.Address.IsValid() {
			v.refuse(path+".address", "must not be the VIP itself")
		}
		if blockPrefix.Contains(w.Address) {
			v.refuse(path+".address", "must not be in %s, whose addresses name port blocks, is %s", blockPrefix, w.Address)
		}
		if w.Tunnel.IsValid() {
			v.address(path+".tunnel", w.Tunnel)
		}
		v.host(path+".host", w.Host)
	}
}

// familyOf holds that a is of the family that the VIP has, or will get from its pool.
func (v *validator) familyOf(field string, vip VIP, a netip.Addr) {
	switch {
	case !a.IsValid():
	case vip.Address.IsValid():
		if a.Is4() != vip.Address.Is4() {
			v.refuse(field, "must be of the VIP's family (%s), is %s", family(vip.Address), a)
		}
	case vip.Pool != "" && vip.WantedFamily() != "" && !vip.WantedFamily().Of(a):
		v.refuse(field, "must be of the VIP's family (%s), is %s", vip.WantedFamily(), a)
	}
}

// validatePorts holds that the numbers of ports make sense.
func (s SNAT) validatePorts(v *validator) {
	if s.MaxPorts < RangePorts || s.MaxPorts > MaxMaxPorts || s.MaxPorts%RangePorts != 0 {
		v.refuse("snat.maxPorts", "must be a multiple of %d, %d to %d, is %d", RangePorts, RangePorts, MaxMaxPorts, s.MaxPorts)
	}
	switch {
	case s.Preallocate%RangePorts != 0:
		v.refuse("snat.preallocate", "must be a multiple of %d, is %d", RangePorts, s.Preallocate)
	case s.Preallocate > s.MaxPorts:
		v.refuse("snat.preallocate", "must be at most maxPorts (%d), is %d", s.MaxPorts, s.Preallocate)
	}
	if len(s.Reserved) > MaxReserved {
		v.refuse("snat.reserved", "must be at most %d, are %d", MaxReserved, len(s.Reserved))
	}
	for i, r := range s.Reserved {
		if r.First == 0 || r.First > r.Last {
			v.refuse(fmt.Sprintf("snat.reserved[%d]", i), "must be a port or a range of ports, such as 1-1023, is %s", r)
		}
	}
}
