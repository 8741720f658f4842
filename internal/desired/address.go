package desired

import (
	"cmp"
	"iter"
	"net/netip"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/sorted"
)

// Addresses finds what addresses of VIPs, backends, SNAT clients and nodes are used for.
type Addresses struct{ uses sorted.Map[Use, none] }

// Use is what an address is used for.
type Use struct {
	Address netip.Addr
	As      Purpose
	Name    string // of the VIP or node
	Host    string // that a tunnel leads to, or a backend lives on
}

// Purpose is what an address is used for. A backend's address that is its tunnel too is only the latter.
type Purpose uint8

// The purposes.
const (
	AsVIP Purpose = iota
	AsBackend
	AsTunnel
	AsNode
	AsWorkload // of a VIP's SNAT; it is a backend's or a tunnel's too
	AsTIP      // Host is the switch
)

// Compare orders uses by address.
func (u Use) Compare(other Use) int {
	return cmp.Or(u.Address.Compare(other.Address), cmp.Compare(u.As, other.As),
		cmp.Compare(u.Name, other.Name), cmp.Compare(u.Host, other.Host))
}

var _ = sorted.Register(Use.Compare)

// Of are the uses of an address for one purpose, in order.
func (a Addresses) Of(address netip.Addr, as Purpose) iter.Seq[Use] {
	return func(yield func(Use) bool) {
		for u := range a.uses.From(Use{Address: address, As: as}) {
			if u.Address != address || u.As != as || !yield(u) {
				return
			}
		}
	}
}

// From are the uses of an address and of those after it, in order.
func (a Addresses) From(address netip.Addr) iter.Seq[Use] {
	return func(yield func(Use) bool) {
		for u := range a.uses.From(Use{Address: address}) {
			if !yield(u) {
				return
			}
		}
	}
}

// In are the uses of the addresses of a prefix, in order.
func (a Addresses) In(prefix netip.Prefix) iter.Seq[Use] {
	return func(yield func(Use) bool) {
		for u := range a.From(prefix.Masked().Addr()) {
			if !prefix.Contains(u.Address) || !yield(u) {
				return
			}
		}
	}
}

// ReplaceVIP takes over what vip uses addresses for, in the place of old.
func (a *Addresses) ReplaceVIP(old, vip model.VIP) { replace(&a.uses, eachUse, old, vip) }

// replaceNode takes over the addresses of n, in the place of those of old.
func (a *Addresses) replaceNode(old, n model.Node) {
	for _, address := range old.Addresses {
		a.uses.Delete(Use{Address: address, As: AsNode, Name: old.Name})
	}
	for _, address := range n.Addresses {
		a.uses.Set(Use{Address: address, As: AsNode, Name: n.Name}, none{})
	}
}

func eachUse(vip model.VIP, do func(Use)) {
	if vip.Address.IsValid() { // else it asks a pool for one
		do(Use{Address: vip.Address, As: AsVIP, Name: vip.Name})
	}
	for _, e := range vip.Endpoints {
		for _, b := range e.Backends {
			do(Use{Address: b.TunnelAddress(), As: AsTunnel, Name: vip.Name, Host: b.Host})
			if b.Address != b.TunnelAddress() {
				do(Use{Address: b.Address, As: AsBackend, Name: vip.Name, Host: b.Host})
			}
		}
	}
	if vip.Hardware != nil {
		for _, t := range vip.Hardware.TIPs {
			do(Use{Address: t.Address, As: AsTIP, Name: vip.Name, Host: t.Switch})
		}
	}
	if vip.SNAT == nil {
		return
	}
	for _, w := range vip.SNAT.Workloads {
		do(Use{Address: w.Address, As: AsWorkload, Name: vip.Name})
		do(Use{Address: w.TunnelAddress(), As: AsTunnel, Name: vip.Name, Host: w.Host})
		if w.Address != w.TunnelAddress() {
			do(Use{Address: w.Address, As: AsBackend, Name: vip.Name, Host: w.Host})
		}
	}
}
