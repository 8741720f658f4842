package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/fairshare"
)

// snatTables are those that workloads' own connections fill, as enum snat_table.
const snatTables = bpf.AgentSnatTableSNAT_TABLES

// SNATTableUsage is what a tenant has of the table of source NAT that it is nearest to the end of, and may have.
type SNATTableUsage struct {
	Tenant      string
	Used, Limit int
}

// SNATRefusal is a VIP whose workloads' own connections were refused since the last sweep: there was no room for a row.
type SNATRefusal struct {
	VIP         netip.Addr
	Used, Limit int // of the tenant, as SNATTableUsage
}

// snatTenant is who shares the tables on this host, by number.
type snatTenant struct {
	name      string // empty: a VIP that is by itself
	workloads int
	vips      map[netip.Addr]bool
}

func (d *Datapath) snatTables() [snatTables]*ebpf.Map {
	return [snatTables]*ebpf.Map{d.objects.SnatFlows, d.objects.SnatPorts, d.objects.SnatDests, d.objects.SnatBlockUse}
}

// snatTenants are those of rows.
func (d *Datapath) snatTenants(rows map[netip.Addr]*snatRow) map[uint32]snatTenant {
	owners := ownersOf(d.rules, rows)
	all := make(map[uint32]snatTenant)
	for _, row := range rows {
		vip := row.config.Key.VIP
		t, known := all[d.tenants.vips[vip]]
		if !known {
			t.vips = make(map[netip.Addr]bool)
		}
		if name, named := tenantName(owners[vip], vip); named {
			t.name = name
		}
		t.vips[vip] = true
		t.workloads++
		all[d.tenants.vips[vip]] = t
	}
	return all
}

// snatAccounts are the counts of the programs.
type snatAccounts struct {
	states  []bpf.AgentSnatStat   // by workload's number
	tenants []bpf.AgentSnatTenant // by tenant's number
}

func (d *Datapath) snatAccounts() (snatAccounts, error) {
	a := snatAccounts{
		states: make([]bpf.AgentSnatStat, d.objects.SnatStats.MaxEntries()), tenants: make([]bpf.AgentSnatTenant, d.objects.SnatTenants.MaxEntries()),
	}
	if err := readArray(d.objects.SnatStats, a.states); err != nil {
		return a, fmt.Errorf("read what workloads have of source NAT: %w", err)
	}
	if err := readArray(d.objects.SnatTenants, a.tenants); err != nil {
		return a, fmt.Errorf("read what tenants have of source NAT: %w", err)
	}
	return a, nil
}

// setShares brings what tenants may have into the tables: they are divided by workloads with source NAT.
func (d *Datapath) setShares(tenants map[uint32]snatTenant, a snatAccounts) error {
	numbers := slices.Sorted(maps.Keys(tenants))
	for table, of := range d.snatTables() {
		parties := make([]fairshare.Claim[int], len(numbers))
		for i, number := range numbers {
			row := a.tenants[number] // wanted is what the tenant has, and what it was refused
			parties[i].Weight = tenants[number].workloads
			parties[i].Want = int(int32(row.Rows[table])) + int(row.Refused[table]-d.snatRefused[number][table])
		}
		each, lent := shareTable(int(of.MaxEntries()), false, parties)
		for i, share := range append(each, quota{guaranteed: lent, limit: lent}) {
			number := uint32(0) // of no tenant: what all may borrow
			if i < len(numbers) {
				number = numbers[i]
			}
			row := a.tenants[number]
			if row.Guaranteed[table] == uint32(share.guaranteed) && row.Limit[table] == uint32(share.limit) {
				continue
			}
			c := bpf.AgentSnatShareCall{Tenant: number, Table: uint32(table), Guaranteed: uint32(share.guaranteed), Limit: uint32(share.limit)}
			if err := call(d.objects.SnatShare, &c); err != nil {
				return fmt.Errorf("share rows of source NAT: %w", err)
			}
		}
	}
	return nil
}

// shareAnew divides the tables after workloads or their tenants have changed.
func (d *Datapath) shareAnew(rows map[netip.Addr]*snatRow) error {
	tenants := d.snatTenants(rows)
	weights := make(map[uint32]int, len(tenants))
	for number, t := range tenants {
		weights[number] = t.workloads
	}
	if maps.Equal(weights, d.snatWeights) {
		return nil
	}
	a, err := d.snatAccounts()
	if err != nil {
		return err
	}
	if err := d.setShares(tenants, a); err != nil {
		return err
	}
	d.snatWeights = weights
	return nil
}

// followTenants has the tables divided among, and rows counted for, the tenants as their VIPs are numbered now.
func (d *Datapath) followTenants() error {
	if err := d.shareAnew(d.snat); err != nil {
		return err
	}
	for _, row := range d.snat {
		if err := d.listSNAT(row, false); err != nil {
			return err
		}
	}
	return nil
}

// listSNAT has the rows of a workload counted for its tenant.
func (d *Datapath) listSNAT(row *snatRow, fresh bool) error {
	tenant := d.tenants.vips[row.config.Key.VIP]
	if tenant == row.tenant && !fresh {
		return nil
	}
	c := bpf.AgentSnatListCall{Workload: row.number, Tenant: tenant}
	if fresh {
		c.Fresh = 1
	}
	if err := call(d.objects.SnatList, &c); err != nil {
		return fmt.Errorf("say whose %s is: %w", row.config.Key, err)
	}
	row.tenant = tenant
	return nil
}

// settleSNAT is called after each sweep, which has counted the rows: it mends counts, divides the tables by what
// tenants have and want, and tells how near they are to what they may have.
func (d *Datapath) settleSNAT() ([]SNATTableUsage, []SNATRefusal, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.snat) == 0 {
		return nil, nil, nil
	}
	a, err := d.snatAccounts()
	if err != nil {
		return nil, nil, err
	}
	if err := d.reconcileSNAT(a, false); err != nil {
		return nil, nil, err
	}
	tenants := d.snatTenants(d.snat)
	if err := d.setShares(tenants, a); err != nil {
		return nil, nil, err
	}
	if a, err = d.snatAccounts(); err != nil {
		return nil, nil, err
	}
	rooms, refusals := d.snatRooms(tenants, a)
	d.snatRefused = make(map[uint32][snatTables]uint32, len(tenants))
	for number := range tenants {
		d.snatRefused[number] = a.tenants[number].Refused
	}
	return rooms, refusals, nil
}

// snatRooms tells what tenants have and may have, and which VIPs were refused more.
func (d *Datapath) snatRooms(tenants map[uint32]snatTenant, a snatAccounts) (rooms []SNATTableUsage, refusals []SNATRefusal) {
	refused := make(map[netip.Addr]bool)
	for _, row := range d.snat {
		if now := a.states[row.number].Refused; now != row.refused {
			refused[row.config.Key.VIP], row.refused = true, now
		}
	}
	for number, t := range tenants {
		room := nearest(a.tenants[number])
		if room.Tenant = t.name; t.name != "" {
			rooms = append(rooms, room)
		}
		for vip := range t.vips {
			if refused[vip] {
				refusals = append(refusals, SNATRefusal{VIP: vip, Used: room.Used, Limit: room.Limit})
			}
		}
	}
	slices.SortFunc(rooms, func(a, b SNATTableUsage) int { return strings.Compare(a.Tenant, b.Tenant) })
	slices.SortFunc(refusals, func(a, b SNATRefusal) int { return a.VIP.Compare(b.VIP) })
	return rooms, refusals
}

// nearest is of the table of which the least is left to a tenant.
func nearest(row bpf.AgentSnatTenant) (room SNATTableUsage) {
	for table := range snatTables {
		used, limit := max(int(int32(row.Rows[table])), 0), int(row.Limit[table])
		if room.Limit == 0 || used*room.Limit > room.Used*limit {
			room.Used, room.Limit = used, limit
		}
	}
	return room
}
