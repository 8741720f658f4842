package session

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
)

// sessionTable is enum session_table: a table that has quotas.
type sessionTable int

const (
	ConfirmedTable sessionTable = iota
	newTable
	quotaTables = sessionTable(len(bpf.AgentSessionUsage{}.Made))
)

// Borrowed is the key of the rows that count what VIPs have Borrowed: no VIP's address.
var Borrowed netip.Addr

// VIPSessions is what a VIP has of the tables of sessions.
type VIPSessions struct {
	VIP    netip.Addr
	Tenant string // empty: not known yet
	// Confirmed are those that both ends have spoken in.
	Confirmed, New int
	Limit          int  // on Confirmed, until the next sweep
	Refused        bool // it wanted more than it may have since the last sweep
	// Began are those that clients began since the last sweep, Answered those that the other end has spoken in since.
	Began, Answered uint64
}

// TenantSessions is what the VIPs of a tenant have of confirmed sessions together.
type TenantSessions struct {
	Tenant           string
	Confirmed, Limit int
}

// vipSessions is what a sweep counts of a VIP.
type vipSessions struct {
	Used     [quotaTables]int // rows of each table, within quotas
	overflow int              // new ones beyond quotas
	Waiting  [quotaTables]int // confirmed, but still among the new ones; new and refused since the last sweep
}

// tableRoom is how many rows a table is sure to hold: the kernel keeps some free for each CPU, and evicts before it
// uses those of another.
func tableRoom(table *ebpf.Map) int {
	const perCPU = 128
	size := int(table.MaxEntries())
	return size - min(size/2, perCPU*runtime.NumCPU())
}

// rows are the quotas as the programs compare them: with counts that grow from what they were, made, when the sweep
// began. Of the VIP that is no address they say what may be Borrowed.
func (t *Tracker) quotaRows(
	tenants map[string]*tenantVIPs, held map[netip.Addr]*vipSessions, made map[netip.Addr]bpf.AgentSessionUsage,
) map[netip.Addr]bpf.AgentSessionQuota {
	rows := make(map[netip.Addr]bpf.AgentSessionQuota, len(held)+1)
	var all bpf.AgentSessionQuota
	for table := range quotaTables {
		each, shared := shareAmongTenants(t.TableRows(table), t.maxVIP, table, tenants, held)
		lent := 0
		for vip, q := range each {
			row, used := rows[vip], held[vip].Used[table]
			row.Guaranteed[table] = made[vip].Made[table] + uint64(max(q.Guaranteed-used, 0))
			row.Limit[table] = made[vip].Made[table] + uint64(max(q.Limit-used, 0))
			rows[vip] = row
			lent += max(min(used, q.Limit)-q.Guaranteed, 0)
		}
		all.Guaranteed[table] = made[Borrowed].Made[table] + uint64(max(shared-lent, 0))
	}
	all.Limit[newTable] = uint64(t.OverflowRoom())
	rows[Borrowed] = all
	return rows
}

// TableRows is the number of rows of a table that VIPs share.
func (t *Tracker) TableRows(table sessionTable) int {
	if table == newTable {
		return tableRoom(t.objects.NewSessions) - t.OverflowRoom()
	}
	return tableRoom(t.objects.Sessions)
}

// OverflowRoom is how many new sessions may be beyond quotas: a quarter, as far as their keys are kept.
func (t *Tracker) OverflowRoom() int {
	return min(tableRoom(t.objects.NewSessions)/4, int(t.objects.OverflowKeys.MaxEntries()))
}

// CountVIPs has sessions counted for exactly the VIPs of rules. One that is new has none yet. The caller holds
// the lock.
func (t *Tracker) CountVIPs(rules map[model.HostBackendKey]model.HostBackend) error {
	made, err := t.usages()
	if err != nil {
		return err
	}
	held := make(map[netip.Addr]*vipSessions)
	for key := range rules {
		held[key.Endpoint.VIP] = &vipSessions{}
	}
	rows := t.quotaRows(tenantVIPsOf(rules), held, made)
	for vip, row := range rows {
		if _, known := made[vip]; !known {
			err = errors.Join(err, t.objects.SessionUsages.Put(bpf.ToAddress(vip), bpf.AgentSessionUsage{}), t.objects.SessionQuotas.Put(bpf.ToAddress(vip), row))
		}
	}
	for vip := range made {
		if _, wanted := rows[vip]; !wanted {
			err = errors.Join(err, deleteRow(t.objects.SessionQuotas, vip), deleteRow(t.objects.SessionUsages, vip))
		}
	}
	if err != nil {
		return fmt.Errorf("set quotas of sessions: %w", err)
	}
	return nil
}

func deleteRow(table *ebpf.Map, of netip.Addr) error {
	if err := table.Delete(bpf.ToAddress(of)); !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}

func (t *Tracker) usages() (map[netip.Addr]bpf.AgentSessionUsage, error) {
	rows, err := abi.ReadTable[bpf.AgentAddress, bpf.AgentSessionUsage](t.objects.SessionUsages)
	if err != nil {
		return nil, fmt.Errorf("read what VIPs have of sessions: %w", err)
	}
	made := make(map[netip.Addr]bpf.AgentSessionUsage, len(rows))
	for vip, row := range rows {
		made[bpf.FromAddress(vip)] = row
	}
	return made, nil
}

// Ledger counts what VIPs have, beside a sweep.
type Ledger struct {
	confirmed *ebpf.Map
	made      map[netip.Addr]bpf.AgentSessionUsage // when it began
	Held      map[netip.Addr]*vipSessions
}

// NewLedger has counted nothing yet.
func (t *Tracker) NewLedger() (*Ledger, error) {
	made, err := t.usages()
	l := &Ledger{confirmed: t.objects.Sessions, made: made, Held: make(map[netip.Addr]*vipSessions, len(made))}
	for vip := range made {
		if vip != Borrowed {
			l.Held[vip] = &vipSessions{}
		}
	}
	return l, err
}

// add counts a session that is in a table.
func (l *Ledger) add(in *ebpf.Map, s Session, overflow bool) {
	h := l.Held[s.VIP.Addr()]
	if h == nil { // the VIP is gone
		return
	}
	if in == l.confirmed {
		h.Used[ConfirmedTable]++
		return
	}
	if overflow {
		h.overflow++
	} else {
		h.Used[newTable]++
	}
	if s.State == StateEstablished {
		h.Waiting[ConfirmedTable]++
	}
}

// ApplyQuotas sets quotas by what the ledger has counted. It ends sessions that VIPs borrowed rows for and others need:
// those that have been idle for longest.
func (t *Tracker) ApplyQuotas(l *Ledger) ([]VIPSessions, []TenantSessions, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for vip, h := range l.Held {
		h.Waiting[newTable] = int(l.made[vip].Refused[newTable] - t.before[vip].Refused[newTable])
	}
	tenants := tenantVIPsOf(t.rules())
	for vip, row := range t.quotaRows(tenants, l.Held, l.made) {
		err := t.objects.SessionQuotas.Update(bpf.ToAddress(vip), row, ebpf.UpdateExist)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) { // the VIP may have gone
			return nil, nil, fmt.Errorf("set the quota of sessions of %s: %w", vip, err)
		}
	}
	each, _ := shareAmongTenants(t.TableRows(ConfirmedTable), t.maxVIP, ConfirmedTable, tenants, l.Held)
	excess := make(map[netip.Addr]int)
	all := make([]VIPSessions, 0, len(each))
	owners := make(map[netip.Addr]string, len(each))
	for key, b := range t.rules() {
		owners[key.Endpoint.VIP] = b.Tenant
	}
	for vip, q := range each {
		h, limit := l.Held[vip], q.Limit
		if h.Used[ConfirmedTable] > limit {
			excess[vip] = h.Used[ConfirmedTable] - limit
		}
		before, counted := t.before[vip]
		now := l.made[vip]
		found := VIPSessions{
			VIP: vip, Tenant: owners[vip], Confirmed: min(h.Used[ConfirmedTable], limit), New: h.Used[newTable] + h.overflow, Limit: limit,
			Refused: now.Refused != before.Refused,
		}
		if counted { // what is beyond quotas is made all the same, or stays new
			found.Began = now.Made[newTable] + now.Refused[newTable] - before.Made[newTable] - before.Refused[newTable]
			found.Answered = min(now.Made[ConfirmedTable]+now.Refused[ConfirmedTable]-before.Made[ConfirmedTable]-before.Refused[ConfirmedTable], found.Began)
		}
		all = append(all, found)
	}
	t.before = l.made
	slices.SortFunc(all, func(a, b VIPSessions) int { return a.VIP.Compare(b.VIP) })
	return all, sumTenants(tenants, all), t.giveBack(excess)
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
func (t *Tracker) giveBack(excess map[netip.Addr]int) error {
	if len(excess) == 0 {
		return nil
	}
	type idle struct {
		key  bpf.AgentSessionKey
		seen time.Duration
	}
	found := make(map[netip.Addr][]idle, len(excess))
	err := Each(t.objects.Sessions, func(key bpf.AgentSessionKey, row bpf.AgentSession) error {
		vip := bpf.FromAddress(row.Vip)
		if excess[vip] > 0 {
			found[vip] = append(found[vip], idle{key, time.Duration(row.LastSeen)})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("end sessions that VIPs have Borrowed: %w", err)
	}
	for vip, sessions := range found {
		slices.SortFunc(sessions, func(a, b idle) int { return int(a.seen - b.seen) })
		for _, s := range sessions[:min(excess[vip], len(sessions))] {
			if err := endSession(t.objects.Sessions, s.key, nil); err != nil {
				return fmt.Errorf("end a session that %s has Borrowed: %w", vip, err)
			}
		}
	}
	return nil
}
