package snat

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/tenant"
	"github.com/weirlb/weir/internal/model"
)

// Sizes of source NAT that Config leaves 0.
const (
	DefaultMaxFlows = 1 << 19
	// DefaultMaxQueued is of one workload's packets that wait for a port.
	DefaultMaxQueued = 256
)

// groupBits are those of the group, before an address, in the table of exceptions.
const groupBits = 32

// MaxWorkloads is the room in snat_workloads and snat_stats, whose first row is nobody's.
const MaxWorkloads = 4096

// Translator is of the workloads whose own connections leave as a VIP: what their ranges are, and the flows of these.
type Translator struct {
	calls
	uplink       string
	rules        func() map[model.HostBackendKey]model.HostBackend // of the host
	numbers      *tenant.Numbers
	setTunnels   func() error      // after those of workloads have changed
	setWorkloads func(n int) error // has programs translate for so many

	mu      *sync.Mutex             // the data plane's: guards the below, and the rules
	rows    map[netip.Addr]*snatRow // by workload, as the tables hold them
	excepts map[bpf.AgentSnatExempt]uint8
	adopted map[bpf.AgentAddress]uint8 // tunnels that an earlier process had, until SetSNAT
	Shares  *Shares
}

// Config is what a Translator needs of the data plane.
type Config struct {
	Objects      *bpf.AgentObjects
	Uplink       string
	Rules        func() map[model.HostBackendKey]model.HostBackend
	Numbers      *tenant.Numbers
	SetTunnels   func() error
	SetWorkloads func(n int) error
	Lock         *sync.Mutex
}

// New is of the tables of the objects.
func New(c Config) *Translator {
	return &Translator{
		calls: calls{objects: c.Objects}, uplink: c.Uplink, rules: c.Rules, numbers: c.Numbers,
		setTunnels: c.SetTunnels, setWorkloads: c.SetWorkloads, mu: c.Lock,
		Shares: &Shares{objects: c.Objects, rules: c.Rules, numbers: c.Numbers},
	}
}

// Tunnels are the addresses that the host decapsulates for, with these rules: theirs, and those of workloads. The caller
// holds the lock.
func (t *Translator) Tunnels(rules map[model.HostBackendKey]model.HostBackend) map[bpf.AgentAddress]uint8 {
	tunnels := tunnelsOf(rules, t.rows)
	maps.Copy(tunnels, t.adopted)
	return tunnels
}

// FitTunnels says whether there is room for the tunnels of these rules. The caller holds the lock.
func (t *Translator) FitTunnels(rules map[model.HostBackendKey]model.HostBackend) error {
	return t.fit(t.Tunnels(rules))
}

func (t *Translator) fit(tunnels map[bpf.AgentAddress]uint8) error {
	if room := int(t.objects.Tunnels.MaxEntries()); len(tunnels) > room {
		return fmt.Errorf("needs %d tunnel addresses, has room for %d", len(tunnels), room)
	}
	return nil
}

func tunnelsOf(rules map[model.HostBackendKey]model.HostBackend, rows map[netip.Addr]*snatRow) map[bpf.AgentAddress]uint8 {
	tunnels := make(map[bpf.AgentAddress]uint8)
	for key := range rules {
		tunnels[bpf.ToAddress(key.Tunnel)] = 1
	}
	for _, row := range rows {
		tunnels[bpf.ToAddress(row.config.Tunnel)] = 1
	}
	return tunnels
}

// Configs are what the workloads are to be. The caller holds the lock.
func (t *Translator) Configs() iter.Seq[model.HostSNAT] { return configs(t.rows) }

func configs(rows map[netip.Addr]*snatRow) iter.Seq[model.HostSNAT] {
	return func(yield func(model.HostSNAT) bool) {
		for _, row := range rows {
			if !yield(row.config) {
				return
			}
		}
	}
}

// snatRow is a workload that leaves as a VIP, as the tables hold it.
type snatRow struct {
	number uint32
	epoch  uint32
	config model.HostSNAT
	blocks map[uint32]uint64 // ports for new connections, by block
	before model.HostSNAT    // that it was until SetSNAT

	tenant  uint32 // that its rows are counted for
	refused uint32 // what its count said at the last sweep
}

// FollowTenants has the tables divided among, and rows counted for, the tenants as their VIPs are numbered now. The caller
// holds the lock.
func (t *Translator) FollowTenants() error { return t.Shares.follow(t.rows) }

// alwaysExcepted are destinations that no connection of a workload's own is translated for.
var alwaysExcepted = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("::/127"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

// SetSNAT makes these the only workloads whose own connections leave as a VIP. What they have open stays,
// but connections of a workload that leaves as another VIP, is filtered otherwise, or is there no more end,
// and so do those on ranges that it lost. Nobody's connections to excepted are translated. It changes nothing if they do
// not fit.
func (t *Translator) SetSNAT(wanted []model.HostSNAT, excepted []netip.Prefix) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if room := MaxWorkloads - 1; len(wanted) > room {
		return fmt.Errorf("set source NAT: needs %d workloads, has room for %d", len(wanted), room)
	}
	if t.rows == nil {
		t.rows = make(map[netip.Addr]*snatRow)
	}
	rows := make(map[netip.Addr]*snatRow, len(wanted))
	for _, w := range wanted {
		if other, taken := rows[w.Key.Address]; taken {
			return fmt.Errorf("set source NAT: %s leaves as %s already", w.Key, other.config.Key.VIP)
		}
		rows[w.Key.Address] = &snatRow{config: w}
	}
	if err := t.fit(tunnelsOf(t.rules(), rows)); err != nil {
		return fmt.Errorf("set source NAT: %w", err)
	}
	if err := t.endSNAT(rows); err != nil {
		return err
	}
	t.numberSNAT(rows)
	if err := t.numbers.Set(tenant.OwnersOf(t.rules(), configs(rows))); err != nil {
		return err
	}
	if err := t.Shares.divide(rows); err != nil {
		return err
	}
	if err := t.writeExcepts(rows, excepted); err != nil {
		return err
	}
	for _, dip := range slices.SortedFunc(maps.Keys(rows), netip.Addr.Compare) {
		if err := t.writeSNAT(rows[dip]); err != nil {
			return fmt.Errorf("set source NAT of %s: %w", dip, err)
		}
		t.rows[dip] = rows[dip]
	}
	t.adopted = nil
	if err := t.setTunnels(); err != nil {
		return err
	}
	return t.setWorkloads(len(rows))
}

// endSNAT removes the workloads that are not in rows, or not as they were.
func (t *Translator) endSNAT(rows map[netip.Addr]*snatRow) error {
	for dip, old := range t.rows {
		now, stays := rows[dip]
		if stays && now.config.Key == old.config.Key && now.config.Filtering == old.config.Filtering {
			continue
		}
		if err := t.objects.SnatWorkloads.Delete(bpf.ToAddress(dip)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove source NAT of %s: %w", dip, err)
		}
		if err := t.endFlowsOf(old.number); err != nil {
			return err
		}
		for block := range old.blocks {
			err := t.objects.SnatBlocks.Delete(bpf.AgentSnatBlockKey{Workload: old.number, Block: block})
			if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("remove ports of %s: %w", dip, err)
			}
		}
		delete(t.rows, dip)
	}
	return nil
}

// numberSNAT gives each row the number and what else it had, or a free number.
func (t *Translator) numberSNAT(rows map[netip.Addr]*snatRow) {
	taken := make(map[uint32]bool)
	for dip, row := range rows {
		if old := t.rows[dip]; old != nil {
			row.number, row.epoch, row.blocks, row.before = old.number, old.epoch, old.blocks, old.config
			row.tenant, row.refused = old.tenant, old.refused
			taken[row.number] = true
		}
	}
	next := uint32(1)
	for _, dip := range slices.SortedFunc(maps.Keys(rows), netip.Addr.Compare) {
		if rows[dip].number != 0 {
			continue
		}
		for taken[next] {
			next++
		}
		rows[dip].number, taken[next] = next, true
	}
}

// writeSNAT brings one workload's ports, and then the workload, into the tables.
func (t *Translator) writeSNAT(row *snatRow) error {
	blocks := blocksOf(row.config)
	old := row.blocks
	if err := t.Shares.list(row, old == nil); err != nil {
		return err
	}
	if now, was := row.config, row.before; old != nil && (now.Written != was.Written || now.Cluster != was.Cluster) {
		// Before the ports: if the process ends in between, no older list takes them away.
		if err := t.objects.SnatWorkloads.Put(bpf.ToAddress(now.Key.Address), row.value()); err != nil {
			return err
		}
	}
	held := blocksOfRanges(row.config.Ranges)
	lost := make(map[uint32]uint64)
	for block, ports := range blocksOfRanges(row.before.Ranges) {
		if gone := ports &^ held[block]; gone != 0 {
			lost[block] = gone
		}
	}
	if err := t.writeBlocks(row.number, old, blocks); err != nil {
		return err
	}
	// A block that holds reclaimed ranges alone has a row still, which counts its flows.
	for block := range held {
		if _, has := blocks[block]; !has {
			blocks[block] = 0
		}
	}
	if !maps.Equal(blocks, old) || row.epoch == 0 {
		row.epoch++
	}
	row.blocks = blocks
	if err := t.objects.SnatWorkloads.Put(bpf.ToAddress(row.config.Key.Address), row.value()); err != nil {
		return err
	}
	if len(lost) > 0 {
		return t.endFlowsOn(row, lost)
	}
	return nil
}

// writeBlocks writes the rows of blocks that are not as they were.
func (t *Translator) writeBlocks(number uint32, old, blocks map[uint32]uint64) error {
	for block := range old {
		if _, stays := blocks[block]; !stays {
			if err := t.own(number, block, 0); err != nil {
				return err
			}
		}
	}
	for block, ports := range blocks {
		if old != nil && old[block] == ports {
			continue
		}
		if err := t.own(number, block, ports); err != nil {
			return err
		}
	}
	return nil
}

// blocksOf are the ports that a workload's new connections may use.
func blocksOf(config model.HostSNAT) map[uint32]uint64 {
	blocks := blocksOfRanges(config.Ranges)
	for block, ports := range blocksOfRanges(config.Reclaim) {
		if blocks[block] &^= ports; blocks[block] == 0 {
			delete(blocks, block)
		}
	}
	return blocks
}

func blocksOfRanges(ranges []model.Range) map[uint32]uint64 {
	blocks := make(map[uint32]uint64)
	for _, r := range ranges {
		blocks[uint32(r)/rangesOfBlock] |= 0xff << (uint32(r) % rangesOfBlock * model.RangePorts)
	}
	return blocks
}

const (
	rangesOfBlock = uint32(bpf.AgentSnatBlockLayoutSNAT_BLOCK_RANGES)
	portsOfBlock  = uint32(bpf.AgentSnatBlockLayoutSNAT_BLOCK_PORTS)
)

// Bounds of how many free ports towards one destination are few.
const (
	lowShare       = 4
	minLow, maxLow = 2, 64
)

func (row *snatRow) value() bpf.AgentSnatWorkload {
	value := bpf.AgentSnatWorkload{
		Vip: bpf.ToAddress(row.config.Key.VIP), Number: row.number, Group: row.number, Epoch: row.epoch,
		Written: uint64(row.config.Written), Cluster: row.config.Cluster,
	}
	for block, ports := range row.blocks {
		if ports != 0 {
			value.Blocks[block/64] |= 1 << (block % 64)
		}
		value.Ports += uint32(bits.OnesCount64(ports))
	}
	if value.Ports < row.config.MaxPorts {
		value.Low = min(max(value.Ports/lowShare, minLow), maxLow)
	}
	switch row.config.Filtering {
	case model.FilterAddress:
		value.Flags |= bpf.AgentSnatWorkloadFlagSNAT_ONE_MAPPING | bpf.AgentSnatWorkloadFlagSNAT_FILTER_ADDRESS
	case model.FilterNone:
		value.Flags |= bpf.AgentSnatWorkloadFlagSNAT_ONE_MAPPING
	}
	if row.config.Exhausted == model.ExhaustedReject {
		value.Flags |= bpf.AgentSnatWorkloadFlagSNAT_REJECT
	}
	return value
}

// writeExcepts makes the destinations of all workloads' groups those that they leave alone.
func (t *Translator) writeExcepts(rows map[netip.Addr]*snatRow, always []netip.Prefix) error {
	excepts := make(map[bpf.AgentSnatExempt]uint8)
	for _, row := range rows {
		for _, prefix := range slices.Concat(alwaysExcepted, always, row.config.Except) {
			prefixed := bpf.ToPrefix(prefix.Masked())
			excepts[bpf.AgentSnatExempt{Bits: groupBits + prefixed.Bits, Group: row.number, Address: prefixed.Address}] = 1
		}
	}
	if t.excepts != nil && maps.Equal(excepts, t.excepts) {
		return nil
	}
	if err := abi.WriteTable(t.objects.SnatExempts, excepts); err != nil {
		return fmt.Errorf("set destinations that are left alone: %w", err)
	}
	t.excepts = excepts
	return nil
}
