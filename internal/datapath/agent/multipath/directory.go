package multipath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/multipath"
)

// Directory is the endpoints with multipath, as in the tables mptcp_homes, mptcp_usages and mptcp_quotas.
type Directory struct {
	objects *bpf.AgentObjects

	mu        sync.Mutex
	endpoints map[model.EndpointKey]endpoint // guarded by mu
	unserved  int                            // guarded by mu: endpoints that there is no room for
	refused   uint64                         // rows that there was no room for, and VIPs that are gone did not get; guarded by mu
	read      bool                           // the tables hold nothing that endpoints does not know; guarded by mu
	empty     bool                           // the last sweep left no row; guarded by mu
}

// endpoint is what the tables have of one.
type endpoint struct {
	hosts  []netip.Addr
	own    netip.Addr // a tunnel of this host
	homes  *multipath.Homes
	tenant string
	idle   time.Duration
	// tunnels are those of this host, by backend, and the other way round: a backend may have two.
	tunnels  map[netip.AddrPort]netip.Addr
	backends map[netip.Addr]netip.AddrPort
}

// with is the endpoint with a backend of this host.
func (e endpoint) with(b model.HostBackend) endpoint {
	if e.tunnels == nil {
		e.tunnels, e.backends = map[netip.AddrPort]netip.Addr{}, map[netip.Addr]netip.AddrPort{}
	}
	e.tunnels[b.Backend], e.backends[b.Tunnel] = b.Tunnel, b.Backend
	if !e.own.IsValid() || b.Tunnel.Less(e.own) {
		e.own = b.Tunnel
	}
	return e
}

// New has no endpoints yet.
func New(objects *bpf.AgentObjects) *Directory {
	return &Directory{objects: objects, endpoints: map[model.EndpointKey]endpoint{}}
}

// SetMultipath makes the endpoints of rules that have homes the only ones whose subflows find their connection.
func (d *Directory) SetMultipath(rules map[model.HostBackendKey]model.HostBackend) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	wanted := map[model.EndpointKey]endpoint{}
	for key, b := range rules {
		if len(b.Homes) == 0 {
			continue
		}
		had := d.endpoints[key.Endpoint]
		e := wanted[key.Endpoint].with(b)
		e.hosts, e.homes, e.tenant, e.idle = b.Homes, had.homes, b.Tenant, b.IdleTimeout
		if !slices.Equal(e.hosts, had.hosts) {
			e.homes = nil
		}
		wanted[key.Endpoint] = e
	}
	d.unserved = leaveOut(wanted, int(d.objects.MptcpHomes.MaxEntries())/multipath.Cells)
	if err := d.write(wanted); err != nil {
		return fmt.Errorf("set homes of tokens: %w", err)
	}
	d.endpoints = wanted
	return bpf.ChangeSettings(d.objects, func(s *bpf.AgentAgentSettings) { s.Multipath = uint32(len(wanted)) })
}

// Read restores what an earlier process has set of endpoints with such rules. Their tenants only the manager knows: until it tells,
// all are one's.
func (d *Directory) Read(rules map[model.HostBackendKey]model.HostBackend) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	live, err := d.readHomes()
	if err != nil {
		return fmt.Errorf("read homes of tokens: %w", err)
	}
	for key, homes := range live {
		d.endpoints[key] = endpoint{homes: homes}
	}
	for key, b := range rules {
		if e, there := d.endpoints[key.Endpoint]; there {
			e.idle = b.IdleTimeout
			d.endpoints[key.Endpoint] = e.with(b)
		}
	}
	d.read = true
	return nil
}

func (d *Directory) readHomes() (map[model.EndpointKey]*multipath.Homes, error) {
	live := map[model.EndpointKey]*multipath.Homes{}
	err := abi.EachBatched(d.objects.MptcpHomes, func(key bpf.AgentMultipathHomeKey, row bpf.AgentMultipathHomes) {
		homes := live[fromHomeKey(key)]
		if homes == nil {
			homes = &multipath.Homes{}
			live[fromHomeKey(key)] = homes
		}
		pair := [2]netip.Addr{bpf.FromAddress(row.First)}
		if row.Next != (bpf.AgentAddress{}) {
			pair[1] = bpf.FromAddress(row.Next)
		}
		homes[key.Cell] = pair
	})
	return live, err
}

// leaveOut removes endpoints beyond their tenant's share of the room, and returns how many: of their subflows none is found, and
// none delivered on a guess.
func leaveOut(wanted map[model.EndpointKey]endpoint, room int) (unserved int) {
	tenants := map[string][]model.EndpointKey{}
	for key, e := range wanted {
		tenants[e.tenant] = append(tenants[e.tenant], key)
	}
	for _, keys := range tenants {
		slices.SortFunc(keys, model.EndpointKey.Compare) // the same each time
		for _, key := range keys[min(len(keys), room/len(tenants)):] {
			delete(wanted, key)
			unserved++
		}
	}
	return unserved
}

// write brings the tables to what is wanted: changed endpoints alone, but for the first time.
func (d *Directory) write(wanted map[model.EndpointKey]endpoint) error {
	if !d.read {
		live, err := d.readHomes()
		if err != nil {
			return err
		}
		for key := range live {
			if _, known := d.endpoints[key]; !known {
				d.endpoints[key] = endpoint{}
			}
		}
		d.read = true
	}
	for key, e := range wanted {
		if e.homes != nil {
			continue
		}
		e.homes = multipath.HomesOf(e.hosts)
		if err := d.writeHomes(key, e.homes); err != nil {
			return err
		}
		wanted[key] = e
	}
	for key := range d.endpoints {
		if _, kept := wanted[key]; !kept {
			if err := d.removeHomes(key); err != nil {
				return err
			}
		}
	}
	return d.countVIPs(wanted)
}

func (d *Directory) writeHomes(key model.EndpointKey, homes *multipath.Homes) error {
	rows := make([]bpf.AgentMultipathHomes, multipath.Cells)
	for cell, pair := range homes {
		rows[cell].First = bpf.ToAddress(pair[0])
		if pair[1].IsValid() {
			rows[cell].Next = bpf.ToAddress(pair[1])
		}
	}
	_, err := d.objects.MptcpHomes.BatchUpdate(homeKeys(key), rows, nil)
	return err
}

func (d *Directory) removeHomes(key model.EndpointKey) error {
	for keys := homeKeys(key); len(keys) > 0; {
		n, err := d.objects.MptcpHomes.BatchDelete(keys, nil)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, ebpf.ErrKeyNotExist):
			return err
		}
		keys = keys[min(n+1, len(keys)):] // that one is gone
	}
	return nil
}

func homeKeys(key model.EndpointKey) []bpf.AgentMultipathHomeKey {
	keys := make([]bpf.AgentMultipathHomeKey, multipath.Cells)
	for cell := range keys {
		keys[cell] = toHomeKey(key, uint8(cell))
	}
	return keys
}

// countVIPs has rows counted for exactly the VIPs of endpoints. One that is new has a share at once.
func (d *Directory) countVIPs(endpoints map[model.EndpointKey]endpoint) error {
	tenants := map[netip.Addr]string{}
	for key, e := range endpoints {
		tenants[key.VIP] = e.tenant
	}
	made, err := d.usages()
	if err != nil {
		return err
	}
	for vip, row := range made {
		if _, wanted := tenants[vip]; !wanted {
			d.refused += refusedOf(row)
			if err := errors.Join(remove(d.objects.MptcpQuotas, bpf.ToAddress(vip)), remove(d.objects.MptcpUsages, bpf.ToAddress(vip))); err != nil {
				return err
			}
		}
	}
	for vip, quota := range d.quotas(tenants, nil, nil) {
		if _, known := made[vip]; known {
			continue // until the next sweep, which has counted
		}
		if err := errors.Join(d.objects.MptcpQuotas.Put(bpf.ToAddress(vip), quota), d.objects.MptcpUsages.Put(bpf.ToAddress(vip), bpf.AgentMultipathUsage{})); err != nil {
			return err
		}
	}
	return nil
}

// quotas divides each table among tenants, and what a tenant has among its VIPs: nobody borrows. used are rows that VIPs have, made
// the programs' counts of them.
func (d *Directory) quotas(tenants map[netip.Addr]string, used map[netip.Addr]*[tables]int, made map[netip.Addr]bpf.AgentMultipathUsage) map[netip.Addr]bpf.AgentMultipathQuota {
	vips := map[string]int{}
	for _, tenant := range tenants {
		vips[tenant]++
	}
	room := [tables]int{
		roomOf(d.objects.MptcpTokens), roomOf(d.objects.MptcpNames), roomOf(d.objects.MptcpJoined), roomOf(d.objects.MptcpJoining),
	}
	quotas := make(map[netip.Addr]bpf.AgentMultipathQuota, len(tenants))
	for vip, tenant := range tenants {
		var quota bpf.AgentMultipathQuota
		for table, rows := range room {
			share := rows / len(vips) / vips[tenant]
			if counts := used[vip]; counts != nil {
				share = max(share-counts[table], 0)
			}
			quota.Limit[table] = made[vip].Made[table] + uint64(share)
		}
		quotas[vip] = quota
	}
	return quotas
}

const tables = int(bpf.AgentMultipathTableMULTIPATH_TABLES)

// roomOf is how many rows a table is sure to hold: the kernel evicts before it uses the free ones of another CPU.
func roomOf(table *ebpf.Map) int { return int(table.MaxEntries()) * 3 / 4 }

func (d *Directory) usages() (map[netip.Addr]bpf.AgentMultipathUsage, error) {
	rows, err := abi.ReadTable[bpf.AgentAddress, bpf.AgentMultipathUsage](d.objects.MptcpUsages)
	if err != nil {
		return nil, fmt.Errorf("read what VIPs have of tokens: %w", err)
	}
	made := make(map[netip.Addr]bpf.AgentMultipathUsage, len(rows))
	for vip, row := range rows {
		made[bpf.FromAddress(vip)] = row
	}
	return made, nil
}

func remove[K any](table *ebpf.Map, key K) error {
	if err := table.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}

func toHomeKey(key model.EndpointKey, cell uint8) bpf.AgentMultipathHomeKey {
	return bpf.AgentMultipathHomeKey{Vip: bpf.ToAddress(key.VIP), Port: abi.Port(key.Port), Protocol: uint8(key.Protocol), Cell: cell}
}

func fromHomeKey(key bpf.AgentMultipathHomeKey) model.EndpointKey {
	return model.EndpointKey{VIP: bpf.FromAddress(key.Vip), Protocol: model.Protocol(key.Protocol), Port: abi.Port(key.Port)}
}
