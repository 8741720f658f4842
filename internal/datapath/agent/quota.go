package agent

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
)

// sessionTable is enum session_table: a table that has quotas.
type sessionTable int

const (
	confirmedTable sessionTable = iota
	newTable
	quotaTables = sessionTable(len(bpf.AgentSessionUsage{}.Made))
)

// borrowed is the key of the rows that count what VIPs have borrowed: no VIP's address.
var borrowed netip.Addr

// VIPSessions is what a VIP has of the tables of sessions.
type VIPSessions struct {
	VIP    netip.Addr
	Tenant string // empty: not known yet
	// Confirmed are those that both ends have spoken in.
	Confirmed, New int
	Limit          int  // on Confirmed, until the next sweep
	Refused        bool // it wanted more than it may have since the last sweep
}

// TenantSessions is what the VIPs of a tenant have of confirmed sessions together.
type TenantSessions struct {
	Tenant           string
	Confirmed, Limit int
}

// vipSessions is what a sweep counts of a VIP.
type vipSessions struct {
	used     [quotaTables]int // rows of each table, within quotas
	overflow int              // new ones beyond quotas
	waiting  [quotaTables]int // confirmed, but still among the new ones; new and refused since the last sweep
}

// tableRoom is how many rows a table is sure to hold: the kernel keeps some free for each CPU, and evicts before it
// uses those of another.
func tableRoom(table *ebpf.Map) int {
	const perCPU = 128
	size := int(table.MaxEntries())
	return size - min(size/2, perCPU*runtime.NumCPU())
}

// rows are the quotas as the programs compare them: with counts that grow from what they were, made, when the sweep
// began. Of the VIP that is no address they say what may be borrowed.
func (d *Datapath) quotaRows(
	tenants map[string]*tenantVIPs, held map[netip.Addr]*vipSessions, made map[netip.Addr]bpf.AgentSessionUsage,
) map[netip.Addr]bpf.AgentSessionQuota {
	rows := make(map[netip.Addr]bpf.AgentSessionQuota, len(held)+1)
	var all bpf.AgentSessionQuota
	for table := range quotaTables {
		each, shared := shareAmongTenants(d.tableRows(table), d.config.MaxVIPSessions, table, tenants, held)
		lent := 0
		for vip, q := range each {
			row, used := rows[vip], held[vip].used[table]
			row.Guaranteed[table] = made[vip].Made[table] + uint64(max(q.guaranteed-used, 0))
			row.Limit[table] = made[vip].Made[table] + uint64(max(q.limit-used, 0))
			rows[vip] = row
			lent += max(min(used, q.limit)-q.guaranteed, 0)
		}
		all.Guaranteed[table] = made[borrowed].Made[table] + uint64(max(shared-lent, 0))
	}
	all.Limit[newTable] = uint64(d.overflowRoom())
	rows[borrowed] = all
	return rows
}

// tableRows is the number of rows of a table that VIPs share.
func (d *Datapath) tableRows(table sessionTable) int {
	if table == newTable {
		return tableRoom(d.objects.NewSessions) - d.overflowRoom()
	}
	return tableRoom(d.objects.Sessions)
}

// overflowRoom is how many new sessions may be beyond quotas: a quarter, as far as their keys are kept.
func (d *Datapath) overflowRoom() int {
	return min(tableRoom(d.objects.NewSessions)/4, int(d.objects.OverflowKeys.MaxEntries()))
}

// countVIPs has sessions counted for exactly the VIPs of rules. One that is new has none yet.
func (d *Datapath) countVIPs(rules map[model.HostBackendKey]model.HostBackend) error {
	made, err := d.usages()
	if err != nil {
		return err
	}
	held := make(map[netip.Addr]*vipSessions)
	for key := range rules {
		held[key.Endpoint.VIP] = &vipSessions{}
	}
	rows := d.quotaRows(tenantVIPsOf(rules), held, made)
	for vip, row := range rows {
		if _, known := made[vip]; !known {
			err = errors.Join(err, d.objects.SessionUsages.Put(toAddress(vip), bpf.AgentSessionUsage{}), d.objects.SessionQuotas.Put(toAddress(vip), row))
		}
	}
	for vip := range made {
		if _, wanted := rows[vip]; !wanted {
			err = errors.Join(err, deleteRow(d.objects.SessionQuotas, vip), deleteRow(d.objects.SessionUsages, vip))
		}
	}
	if err != nil {
		return fmt.Errorf("set quotas of sessions: %w", err)
	}
	return nil
}

func deleteRow(table *ebpf.Map, of netip.Addr) error {
	if err := table.Delete(toAddress(of)); !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}

func (d *Datapath) usages() (map[netip.Addr]bpf.AgentSessionUsage, error) {
	rows, err := readTable[bpf.AgentAddress, bpf.AgentSessionUsage](d.objects.SessionUsages)
	if err != nil {
		return nil, fmt.Errorf("read what VIPs have of sessions: %w", err)
	}
	made := make(map[netip.Addr]bpf.AgentSessionUsage, len(rows))
	for vip, row := range rows {
		made[fromAddress(vip)] = row
	}
	return made, nil
}

// ledger counts what VIPs have, beside a sweep.
type ledger struct {
	confirmed *ebpf.Map
	made      map[netip.Addr]bpf.AgentSessionUsage // when it began
	held      map[netip.Addr]*vipSessions
}

func (d *Datapath) newLedger() (*ledger, error) {
	made, err := d.usages()
	l := &ledger{confirmed: d.objects.Sessions, made: made, held: make(map[netip.Addr]*vipSessions, len(made))}
	for vip := range made {
		if vip != borrowed {
			l.held[vip] = &vipSessions{}
		}
	}
	return l, err
}

// add counts a session that is in a table.
func (l *ledger) add(in *ebpf.Map, s Session, overflow bool) {
	h := l.held[s.VIP.Addr()]
	if h == nil { // the VIP is gone
		return
	}
	if in == l.confirmed {
		h.used[confirmedTable]++
		return
	}
	if overflow {
		h.overflow++
	} else {
		h.used[newTable]++
	}
	if s.State == StateEstablished {
		h.waiting[confirmedTable]++
	}
}

// applyQuotas sets quotas by what the ledger has counted. It ends sessions that VIPs borrowed rows for and others need:
// those that have been idle for longest.
func (d *Datapath) applyQuotas(l *ledger) ([]VIPSessions, []TenantSessions, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for vip, h := range l.held {
		h.waiting[newTable] = int(l.made[vip].Refused[newTable] - d.refused[vip][newTable])
	}
	tenants := tenantVIPsOf(d.rules)
	for vip, row := range d.quotaRows(tenants, l.held, l.made) {
		err := d.objects.SessionQuotas.Update(toAddress(vip), row, ebpf.UpdateExist)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) { // the VIP may have gone
			return nil, nil, fmt.Errorf("set the quota of sessions of %s: %w", vip, err)
		}
	}
	each, _ := shareAmongTenants(d.tableRows(confirmedTable), d.config.MaxVIPSessions, confirmedTable, tenants, l.held)
	excess := make(map[netip.Addr]int)
	all := make([]VIPSessions, 0, len(each))
	owners := make(map[netip.Addr]string, len(each))
	for key, b := range d.rules {
		owners[key.Endpoint.VIP] = b.Tenant
	}
	for vip, q := range each {
		h, limit := l.held[vip], q.limit
		if h.used[confirmedTable] > limit {
			excess[vip] = h.used[confirmedTable] - limit
		}
		before, now := d.refused[vip], l.made[vip].Refused
		all = append(all, VIPSessions{
			VIP: vip, Tenant: owners[vip], Confirmed: min(h.used[confirmedTable], limit), New: h.used[newTable] + h.overflow, Limit: limit, Refused: now != before,
		})
	}
	d.refused = make(map[netip.Addr][quotaTables]uint64, len(l.made))
	for vip, row := range l.made {
		d.refused[vip] = row.Refused
	}
	slices.SortFunc(all, func(a, b VIPSessions) int { return a.VIP.Compare(b.VIP) })
	return all, sumTenants(tenants, all), d.giveBack(excess)
}

// sumTenants adds up the confirmed sessions of tenants' VIPs.
func sumTenants(tenants map[string]*tenantVIPs, vips []VIPSessions) []TenantSessions {
	confirmed := make(map[string]int)
	for _, v := range vips {
		confirmed[v.Tenant] += v.Confirmed
	}
	var all []TenantSessions
	for _, name := range slices.Sorted(maps.Keys(tenants)) {
		if t := tenants[name]; t.named {
			all = append(all, TenantSessions{Tenant: name, Confirmed: confirmed[name], Limit: t.limit})
		}
	}
	return all
}

// giveBack ends so many confirmed sessions of each VIP: those that have been idle for longest.
func (d *Datapath) giveBack(excess map[netip.Addr]int) error {
	if len(excess) == 0 {
		return nil
	}
	type idle struct {
		key  bpf.AgentSessionKey
		seen time.Duration
	}
	found := make(map[netip.Addr][]idle, len(excess))
	err := eachSession(d.objects.Sessions, func(key bpf.AgentSessionKey, row bpf.AgentSession) error {
		vip := fromAddress(row.Vip)
		if excess[vip] > 0 {
			found[vip] = append(found[vip], idle{key, time.Duration(row.LastSeen)})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("end sessions that VIPs have borrowed: %w", err)
	}
	for vip, sessions := range found {
		slices.SortFunc(sessions, func(a, b idle) int { return int(a.seen - b.seen) })
		for _, s := range sessions[:min(excess[vip], len(sessions))] {
			if err := endSession(d.objects.Sessions, s.key, nil); err != nil {
				return fmt.Errorf("end a session that %s has borrowed: %w", vip, err)
			}
		}
	}
	return nil
}
