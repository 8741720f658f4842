package agent

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
)

// readSNAT restores what an earlier process has set, as far as the tables tell: what is the manager's
// alone comes with its first message.
func (d *Datapath) readSNAT() error {
	d.snat = make(map[netip.Addr]*snatRow)
	rows, err := readTable[bpf.AgentAddress, bpf.AgentSnatWorkload](d.objects.SnatWorkloads)
	if err != nil {
		return fmt.Errorf("read source NAT: %w", err)
	}
	byNumber := make(map[uint32]*snatRow, len(rows))
	for dip, value := range rows {
		key := model.SNATKey{VIP: fromAddress(value.Vip), Address: fromAddress(dip)}
		row := &snatRow{
			number: value.Number, epoch: value.Epoch, blocks: make(map[uint32]uint64),
			config: model.HostSNAT{
				Key: key, Filtering: filteringOf(value.Flags), Tunnel: key.Address, Exhausted: model.ExhaustedDrop,
				MaxPorts: model.MaxMaxPorts, KeepPorts: model.MaxMaxPorts,
				Written: model.Generation(value.Written), Cluster: value.Cluster,
			},
		}
		if value.Flags&bpf.AgentSnatWorkloadFlagSNAT_REJECT != 0 {
			row.config.Exhausted = model.ExhaustedReject
		}
		d.snat[key.Address], byNumber[row.number] = row, row
	}
	owned, err := readTable[bpf.AgentSnatBlockKey, bpf.AgentSnatBlock](d.objects.SnatBlocks)
	if err != nil {
		return fmt.Errorf("read ports: %w", err)
	}
	for key, value := range owned {
		row := byNumber[key.Workload]
		if row == nil {
			continue
		}
		row.blocks[key.Block] = value.Ports
		held, reclaimed := rangesOfOwned(key, value)
		row.config.Ranges = append(row.config.Ranges, held...)
		row.config.Reclaim = append(row.config.Reclaim, reclaimed...)
	}
	for _, row := range d.snat {
		slices.Sort(row.config.Ranges)
		slices.Sort(row.config.Reclaim)
	}
	if err := errors.Join(d.readExcepts(byNumber), d.readTenantsOfSNAT(), d.endHeld()); err != nil {
		return err
	}
	if len(d.snat) > 0 { // which of them are whose, the manager's first message tells
		d.tunnels, err = readTable[bpf.AgentAddress, uint8](d.objects.Tunnels)
	}
	return err
}

// rangesOfOwned are the ranges that a workload has of a block, and those of them that take no new flow.
func rangesOfOwned(key bpf.AgentSnatBlockKey, owned bpf.AgentSnatBlock) (held, reclaimed []model.Range) {
	for r := range rangesOfBlock {
		number := model.Range(key.Block*rangesOfBlock + r)
		switch {
		case owned.Ports>>(r*model.RangePorts)&0xff != 0:
			held = append(held, number)
		case owned.Flows[r] != 0: // one that is to be given up
			held, reclaimed = append(held, number), append(reclaimed, number)
		}
	}
	return held, reclaimed
}

// readTenantsOfSNAT goes on with the counts of an earlier process, or counts what a version has left that did not.
func (d *Datapath) readTenantsOfSNAT() error {
	a, err := d.snatAccounts()
	if err != nil {
		return err
	}
	uncounted := false
	d.snatRefused = make(map[uint32][snatTables]uint32)
	for _, row := range d.snat {
		state := a.states[row.number]
		row.tenant, row.refused = state.Tenant, state.Refused
		d.snatRefused[row.tenant] = a.tenants[row.tenant].Refused
		uncounted = uncounted || row.tenant == 0
	}
	if err := errors.Join(d.numberTenants(ownersOf(d.rules, d.snat)), d.followTenants()); err != nil || !uncounted {
		return err
	}
	return d.countSNAT()
}

// countSNAT counts all rows anew.
func (d *Datapath) countSNAT() error {
	if err := d.sweepRows(&bpf.AgentSnatSweepCall{}); err != nil { // nothing is idle at no time
		return fmt.Errorf("count flows: %w", err)
	}
	a, err := d.snatAccounts()
	if err != nil {
		return err
	}
	return d.reconcileSNAT(a, true)
}

func filteringOf(flags bpf.AgentSnatWorkloadFlag) model.Filtering {
	switch {
	case flags&bpf.AgentSnatWorkloadFlagSNAT_FILTER_ADDRESS != 0:
		return model.FilterAddress
	case flags&bpf.AgentSnatWorkloadFlagSNAT_ONE_MAPPING != 0:
		return model.FilterNone
	}
	return model.FilterAddressAndPort
}

// readExcepts restores which destinations are left alone.
func (d *Datapath) readExcepts(byNumber map[uint32]*snatRow) error {
	excepts, err := readTable[bpf.AgentSnatExempt, uint8](d.objects.SnatExempts)
	if err != nil {
		return fmt.Errorf("read destinations that are left alone: %w", err)
	}
	for e := range excepts {
		if row := byNumber[e.Group]; row != nil {
			row.config.Except = append(row.config.Except, fromPrefix(bpf.AgentPrefix{Bits: e.Bits - groupBits, Address: e.Address}))
		}
	}
	return nil
}

// endHeld ends the flows that waited in an earlier process, which has their packets.
func (d *Datapath) endHeld() error {
	flows, err := d.Flows()
	if err != nil {
		return err
	}
	for _, flow := range flows {
		if !flow.Open {
			if _, err := d.EndQueuedFlow(flow.Flow); err != nil {
				return err
			}
		}
	}
	for _, row := range d.snat {
		if err := d.ReleaseQueued(row.number, math.MaxInt32); err != nil {
			return err
		}
	}
	return nil
}

// LiveSNAT is what the data plane holds. After a restart it is what the tables tell: bounds are the
// widest, until the manager's first message.
func (d *Datapath) LiveSNAT() []model.HostSNAT {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]model.HostSNAT, 0, len(d.snat))
	for _, row := range d.snat {
		all = append(all, row.config)
	}
	slices.SortFunc(all, func(a, b model.HostSNAT) int { return a.Key.Compare(b.Key) })
	return all
}
