package snat

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/datapath/agent/tenant"
	"github.com/weirlb/weir/internal/fairshare"
	"github.com/weirlb/weir/internal/model"
)

// Tables are those that workloads' own connections fill, as enum snat_table.
const Tables = bpf.AgentSnatTableSNAT_TABLES

// snatTenant is who shares the tables on this host, by number.
type snatTenant struct {
	name      string // empty: a VIP that is by itself
	workloads int
	vips      map[netip.Addr]bool
}

// Shares divides the tables of source NAT among tenants, by the rows that the programs count. The caller of its methods
// holds the data plane's lock.
type Shares struct {
	objects *bpf.AgentObjects
	rules   func() map[model.HostBackendKey]model.HostBackend // of the host
	numbers *tenant.Numbers

	weights map[uint32]int            // that the tables were divided by, by tenant
	refused map[uint32][Tables]uint32 // what tenants' counts said at the last sweep
	off     map[snatCount]int32       // counts that were off at the last sweep
}

func (t *Shares) tables() [Tables]*ebpf.Map {
	return [Tables]*ebpf.Map{t.objects.SnatFlows, t.objects.SnatPorts, t.objects.SnatDests, t.objects.SnatBlockUse}
}

// tenantsOf are those of rows.
func (t *Shares) tenantsOf(rows map[netip.Addr]*snatRow) map[uint32]snatTenant {
	owners := tenant.OwnersOf(t.rules(), configs(rows))
	all := make(map[uint32]snatTenant)
	for _, row := range rows {
		vip := row.config.Key.VIP
		number := t.numbers.Of(vip)
		who, known := all[number]
		if !known {
			who.vips = make(map[netip.Addr]bool)
		}
		if name, named := tenant.Name(owners[vip], vip); named {
			who.name = name
		}
		who.vips[vip] = true
		who.workloads++
		all[number] = who
	}
	return all
}

// Accounts are the counts of the programs.
type Accounts struct {
	States  []bpf.AgentSnatStat   // by workload's number
	Tenants []bpf.AgentSnatTenant // by tenant's number
}

// Accounts reads the counts.
func (t *Shares) Accounts() (Accounts, error) {
	a := Accounts{
		States: make([]bpf.AgentSnatStat, t.objects.SnatStats.MaxEntries()), Tenants: make([]bpf.AgentSnatTenant, t.objects.SnatTenants.MaxEntries()),
	}
	if err := bpf.ReadArray(t.objects.SnatStats, a.States); err != nil {
		return a, fmt.Errorf("read what workloads have of source NAT: %w", err)
	}
	if err := bpf.ReadArray(t.objects.SnatTenants, a.Tenants); err != nil {
		return a, fmt.Errorf("read what tenants have of source NAT: %w", err)
	}
	return a, nil
}

// set brings what tenants may have into the tables: they are divided by workloads with source NAT.
func (t *Shares) set(tenants map[uint32]snatTenant, a Accounts) error {
	numbers := slices.Sorted(maps.Keys(tenants))
	for table, of := range t.tables() {
		parties := make([]fairshare.Claim[int], len(numbers))
		for i, number := range numbers {
			row := a.Tenants[number] // wanted is what the tenant has, and what it was refused
			parties[i].Weight = tenants[number].workloads
			parties[i].Want = int(int32(row.Rows[table])) + int(row.Refused[table]-t.refused[number][table])
		}
		each, lent := tenant.ShareTable(int(of.MaxEntries()), false, parties)
		for i, share := range append(each, tenant.Quota{Guaranteed: lent, Limit: lent}) {
			number := uint32(0) // of no tenant: what all may borrow
			if i < len(numbers) {
				number = numbers[i]
			}
			row := a.Tenants[number]
			if row.Guaranteed[table] == uint32(share.Guaranteed) && row.Limit[table] == uint32(share.Limit) {
				continue
			}
			c := bpf.AgentSnatShareCall{Tenant: number, Table: uint32(table), Guaranteed: uint32(share.Guaranteed), Limit: uint32(share.Limit)}
			if err := bpf.Call(t.objects.SnatShare, &c); err != nil {
				return fmt.Errorf("share rows of source NAT: %w", err)
			}
		}
	}
	return nil
}

// divide divides the tables after workloads or their tenants have changed.
func (t *Shares) divide(rows map[netip.Addr]*snatRow) error {
	tenants := t.tenantsOf(rows)
	weights := make(map[uint32]int, len(tenants))
	for number, who := range tenants {
		weights[number] = who.workloads
	}
	if maps.Equal(weights, t.weights) {
		return nil
	}
	a, err := t.Accounts()
	if err != nil {
		return err
	}
	if err := t.set(tenants, a); err != nil {
		return err
	}
	t.weights = weights
	return nil
}

// follow has the tables divided among, and rows counted for, the tenants as their VIPs are numbered now.
func (t *Shares) follow(rows map[netip.Addr]*snatRow) error {
	if err := t.divide(rows); err != nil {
		return err
	}
	for _, row := range rows {
		if err := t.list(row, false); err != nil {
			return err
		}
	}
	return nil
}

// list has the rows of a workload counted for its tenant.
func (t *Shares) list(row *snatRow, fresh bool) error {
	number := t.numbers.Of(row.config.Key.VIP)
	if number == row.tenant && !fresh {
		return nil
	}
	c := bpf.AgentSnatListCall{Workload: row.number, Tenant: number}
	if fresh {
		c.Fresh = 1
	}
	if err := bpf.Call(t.objects.SnatList, &c); err != nil {
		return fmt.Errorf("say whose %s is: %w", row.config.Key, err)
	}
	row.tenant = number
	return nil
}

// settle is called after each sweep, which has counted the rows: it mends counts, divides the tables by what tenants have
// and want, and tells how near they are to what they may have.
func (t *Shares) settle(rows map[netip.Addr]*snatRow) ([]session.SNATTableUsage, []session.SNATRefusal, error) {
	if len(rows) == 0 {
		return nil, nil, nil
	}
	a, err := t.Accounts()
	if err != nil {
		return nil, nil, err
	}
	if err := t.reconcile(a); err != nil {
		return nil, nil, err
	}
	tenants := t.tenantsOf(rows)
	if err := t.set(tenants, a); err != nil {
		return nil, nil, err
	}
	if a, err = t.Accounts(); err != nil {
		return nil, nil, err
	}
	rooms, refusals := roomsOf(tenants, rows, a)
	t.refused = make(map[uint32][Tables]uint32, len(tenants))
	for number := range tenants {
		t.refused[number] = a.Tenants[number].Refused
	}
	return rooms, refusals, nil
}

// adopt goes on with the counts of an earlier process.
func (t *Shares) adopt(rows map[netip.Addr]*snatRow, a Accounts) {
	t.refused = make(map[uint32][Tables]uint32)
	for _, row := range rows {
		state := a.States[row.number]
		row.tenant, row.refused = state.Tenant, state.Refused
		t.refused[row.tenant] = a.Tenants[row.tenant].Refused
	}
}

// roomsOf tells what tenants have and may have, and which VIPs were refused more.
func roomsOf(
	tenants map[uint32]snatTenant, rows map[netip.Addr]*snatRow, a Accounts,
) (rooms []session.SNATTableUsage, refusals []session.SNATRefusal) {
	refused := make(map[netip.Addr]bool)
	for _, row := range rows {
		if now := a.States[row.number].Refused; now != row.refused {
			refused[row.config.Key.VIP], row.refused = true, now
		}
	}
	for number, who := range tenants {
		room := nearest(a.Tenants[number])
		if room.Tenant = who.name; who.name != "" {
			rooms = append(rooms, room)
		}
		for vip := range who.vips {
			if refused[vip] {
				refusals = append(refusals, session.SNATRefusal{VIP: vip, Used: room.Used, Limit: room.Limit})
			}
		}
	}
	slices.SortFunc(rooms, func(a, b session.SNATTableUsage) int { return strings.Compare(a.Tenant, b.Tenant) })
	slices.SortFunc(refusals, func(a, b session.SNATRefusal) int { return a.VIP.Compare(b.VIP) })
	return rooms, refusals
}

// nearest is of the table of which the least is left to a tenant.
func nearest(row bpf.AgentSnatTenant) (room session.SNATTableUsage) {
	for table := range Tables {
		used, limit := max(int(int32(row.Rows[table])), 0), int(row.Limit[table])
		if room.Limit == 0 || used*room.Limit > room.Used*limit {
			room.Used, room.Limit = used, limit
		}
	}
	return room
}
