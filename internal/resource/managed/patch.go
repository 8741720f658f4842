package managed

import (
	"fmt"
	"net/netip"
	"slices"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
)

// Patch is what one call does to the backends of an endpoint, in the name of a field manager.
type Patch struct {
	Protocol     model.Protocol
	Port         uint16
	FieldManager string

	set    []model.Backend
	remove []netip.AddrPort
	all    bool // the field manager has no others than those of set
	force  bool
}

// Read reads and validates a patch.
func Read(r *weirv1.PatchBackendsRequest) (Patch, error) {
	var f compile.Fields
	p := Patch{Protocol: model.TCP, FieldManager: r.GetFieldManager(), all: r.GetReplace(), force: r.GetForce()}
	if r.GetProtocol() != "" {
		p.Protocol = f.Protocol("protocol", r.GetProtocol())
	}
	if r.GetPort() != model.AllPorts {
		p.Port = f.Port("port", r.GetPort())
	}
	if !model.ValidName(p.FieldManager) {
		f.Refuse("fieldManager", "is required, a DNS label, is %.64q", p.FieldManager)
	}
	if len(r.GetSet())+len(r.GetRemove()) == 0 && !p.all {
		f.Refuse("set", "name backends in set or in remove, or say replace")
	}
	set := map[netip.AddrPort]bool{}
	for i, message := range r.GetSet() {
		b := f.Backend("set", i, message, p.Port)
		if b.FieldManager != "" && b.FieldManager != p.FieldManager {
			f.Refuse(fmt.Sprintf("set[%d].fieldManager", i), "must be that of the call, %s, or left out, is %.64q", p.FieldManager, b.FieldManager)
		}
		if set[b.AddrPort()] {
			f.Refuse(fmt.Sprintf("set[%d]", i), "is %s again", b.AddrPort())
		}
		b.FieldManager, set[b.AddrPort()] = p.FieldManager, true
		p.set = append(p.set, b)
	}
	for i, message := range r.GetRemove() {
		b := f.Backend("remove", i, message, p.Port)
		if set[b.AddrPort()] {
			f.Refuse(fmt.Sprintf("remove[%d]", i), "%s is in set too", b.AddrPort())
		}
		p.remove = append(p.remove, b.AddrPort())
	}
	return p, f.Err()
}

// Effect is what a patch does.
type Effect struct{ Added, Updated, Removed, Managed uint32 }

// NoEndpointError says that the VIP has no such endpoint.
type NoEndpointError struct {
	VIP      string
	Protocol model.Protocol
	Port     uint16
}

func (e *NoEndpointError) Error() string {
	return fmt.Sprintf("VIP %s has no endpoint %s %d: apply the VIP with it first, its backends may be left out", e.VIP, e.Protocol, e.Port)
}

// On is vip after the patch.
func (p Patch) On(vip model.VIP) (model.VIP, Effect, error) {
	at := endpointOf(vip, p.Protocol, p.Port)
	if at < 0 {
		return vip, Effect{}, &NoEndpointError{vip.Name, p.Protocol, p.Port}
	}
	place := map[netip.AddrPort]int{}
	backends := slices.Clone(vip.Endpoints[at].Backends)
	for i, b := range backends {
		place[b.AddrPort()] = i
	}
	var effect Effect
	var errs model.FieldErrorList
	mayWrite := func(field string, b model.Backend) bool {
		if b.FieldManager == p.FieldManager || p.force {
			return true
		}
		errs.Refuse(field, "%s %s: take it over by force, or leave it out", b.AddrPort(), writer(b))
		return false
	}
	gone, set := map[netip.AddrPort]bool{}, map[netip.AddrPort]bool{}
	for i, b := range p.set {
		set[b.AddrPort()] = true
		j, there := place[b.AddrPort()]
		switch {
		case !there:
			effect.Added++
			backends = append(backends, b)
		case backends[j] != b && mayWrite(fmt.Sprintf("set[%d]", i), backends[j]):
			effect.Updated++
			backends[j] = b
		}
	}
	for i, b := range p.remove {
		if j, there := place[b]; there && mayWrite(fmt.Sprintf("remove[%d]", i), backends[j]) {
			gone[b] = true
		}
	}
	backends = slices.DeleteFunc(backends, func(b model.Backend) bool {
		if gone[b.AddrPort()] || p.all && b.FieldManager == p.FieldManager && !set[b.AddrPort()] {
			effect.Removed++
			return true
		}
		if b.FieldManager == p.FieldManager {
			effect.Managed++
		}
		return false
	})
	vip.Endpoints = slices.Clone(vip.Endpoints)
	vip.Endpoints[at].Backends = backends
	if errs.Len() == 0 && effect.Added+effect.Updated+effect.Removed > 0 {
		errs.Add(validate(vip))
	}
	return vip, effect, errs.Err()
}
