package tenant

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
)

// Numbers numbers the tenants of a host's VIPs, from 1: programs count by numbers. Names are not in the tables: after a
// restart VIPs keep their numbers, whose names are known once a manager has said whose a VIP is.
type Numbers struct {
	objects *bpf.AgentObjects
	numbers map[string]uint32     // by name
	vips    map[netip.Addr]uint32 // as in the table
}

// NewNumbers has given none yet.
func NewNumbers(objects *bpf.AgentObjects) *Numbers { return &Numbers{objects: objects} }

// Of is the number of the VIP's tenant.
func (t *Numbers) Of(vip netip.Addr) uint32 { return t.vips[vip] }

// Name is the tenant of a VIP: named, or the VIP by itself.
func Name(tenant string, vip netip.Addr) (name string, named bool) {
	if tenant == "" || tenant == model.DefaultTenant {
		return vip.String(), false
	}
	return tenant, true
}

// OwnersOf are the tenants of all VIPs of the host; empty: nobody has said.
func OwnersOf(rules map[model.HostBackendKey]model.HostBackend, leaving iter.Seq[model.HostSNAT]) map[netip.Addr]string {
	owners := make(map[netip.Addr]string)
	note := func(vip netip.Addr, tenant string) {
		if owners[vip] == "" {
			owners[vip] = tenant
		}
	}
	for key, b := range rules {
		note(key.Endpoint.VIP, b.Tenant)
	}
	for w := range leaving {
		note(w.Key.VIP, w.Tenant)
	}
	return owners
}

// numbered gives each VIP its tenant's number. Nobody's number changes while a VIP of his stays; who is new takes the
// number that his VIP had, or the least that is free.
func (t *Numbers) numbered(owners map[netip.Addr]string) map[netip.Addr]uint32 {
	names, vips := make(map[netip.Addr]string, len(owners)), make(map[netip.Addr]uint32, len(owners))
	numbers, claimed, held := make(map[string]uint32), make(map[uint32]bool), make(map[uint32]bool)
	for vip, tenant := range owners {
		if before := t.vips[vip]; tenant == "" && before != 0 { // it is as it was until somebody says
			vips[vip], held[before] = before, true
			continue
		}
		name, _ := Name(tenant, vip)
		names[vip] = name
		if number := t.numbers[name]; number != 0 {
			numbers[name], claimed[number] = number, true
		}
	}
	order := slices.SortedFunc(maps.Keys(names), netip.Addr.Compare)
	for _, vip := range order {
		if name, before := names[vip], t.vips[vip]; numbers[name] == 0 && before != 0 && !claimed[before] {
			numbers[name], claimed[before] = before, true
		}
	}
	next := uint32(1)
	for _, vip := range order {
		name := names[vip]
		if numbers[name] == 0 {
			for claimed[next] || held[next] {
				next++
			}
			numbers[name], claimed[next] = next, true
		}
		vips[vip] = numbers[name]
	}
	t.numbers = numbers
	return vips
}

// Set brings the numbers of the tenants of all VIPs into the table.
func (t *Numbers) Set(owners map[netip.Addr]string) error {
	vips := t.numbered(owners)
	if maps.Equal(vips, t.vips) {
		return nil
	}
	rows := make(map[bpf.AgentAddress]uint32, len(vips))
	for vip, number := range vips {
		rows[bpf.ToAddress(vip)] = number
	}
	if err := abi.WriteTable(t.objects.VipTenants, rows); err != nil {
		return fmt.Errorf("set whose VIPs are: %w", err)
	}
	t.vips = vips
	return nil
}

// Read restores the numbers that an earlier process has given.
func (t *Numbers) Read() error {
	rows, err := abi.ReadTable[bpf.AgentAddress, uint32](t.objects.VipTenants)
	if err != nil {
		return fmt.Errorf("read whose VIPs are: %w", err)
	}
	t.vips = make(map[netip.Addr]uint32, len(rows))
	for vip, number := range rows {
		t.vips[bpf.FromAddress(vip)] = number
	}
	return nil
}
