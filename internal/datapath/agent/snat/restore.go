package snat

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/tenant"
	"github.com/weirlb/weir/internal/model"
)

// Read restores what an earlier process has set, as far as the tables tell: what is the manager's
// alone comes with its first message.
func (t *Translator) Read() error {
	t.rows = make(map[netip.Addr]*snatRow)
	rows, err := abi.ReadTable[bpf.AgentAddress, bpf.AgentSnatWorkload](t.objects.SnatWorkloads)
	if err != nil {
		return fmt.Errorf("read source NAT: %w", err)
	}
	byNumber := make(map[uint32]*snatRow, len(rows))
	for dip, value := range rows {
		key := model.SNATKey{VIP: bpf.FromAddress(value.Vip), Address: bpf.FromAddress(dip)}
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
		t.rows[key.Address], byNumber[row.number] = row, row
	}
	owned, err := abi.ReadTable[bpf.AgentSnatBlockKey, bpf.AgentSnatBlock](t.objects.SnatBlocks)
	if err != nil {
		return fmt.Errorf("read ports: %w", err)
	}
	for key, value := range owned {
		row := byNumber[key.Workload]
		if row == nil {
			continue
		}
		row.blocks[key.Block] = value.Ports
		held, reclaimed := RangesOfOwned(key, value)
		row.config.Ranges = append(row.config.Ranges, held...)
		row.config.Reclaim = append(row.config.Reclaim, reclaimed...)
	}
	for _, row := range t.rows {
		slices.Sort(row.config.Ranges)
		slices.Sort(row.config.Reclaim)
	}
	if err := errors.Join(t.readExcepts(byNumber), t.readTenantsOfSNAT(), t.endHeld()); err != nil {
		return err
	}
	if len(t.rows) > 0 { // which of them are whose, the manager's first message tells
		t.adopted, err = abi.ReadTable[bpf.AgentAddress, uint8](t.objects.Tunnels)
	}
	return err
}

// RangesOfOwned are the ranges that a workload has of a block, and those of them that take no new flow.
func RangesOfOwned(key bpf.AgentSnatBlockKey, owned bpf.AgentSnatBlock) (held, reclaimed []model.Range) {
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

// readTenantsOfSNAT goes on with the counts of an earlier process.
func (t *Translator) readTenantsOfSNAT() error {
	a, err := t.Shares.Accounts()
	if err != nil {
		return err
	}
	t.Shares.adopt(t.rows, a)
	return errors.Join(t.numbers.Set(tenant.OwnersOf(t.rules(), configs(t.rows))), t.FollowTenants())
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
func (t *Translator) readExcepts(byNumber map[uint32]*snatRow) error {
	excepts, err := abi.ReadTable[bpf.AgentSnatExempt, uint8](t.objects.SnatExempts)
	if err != nil {
		return fmt.Errorf("read destinations that are left alone: %w", err)
	}
	for e := range excepts {
		if row := byNumber[e.Group]; row != nil {
			row.config.Except = append(row.config.Except, bpf.FromPrefix(bpf.AgentPrefix{Bits: e.Bits - groupBits, Address: e.Address}))
		}
	}
	return nil
}

// endHeld ends the flows that waited in an earlier process, which has their packets.
func (t *Translator) endHeld() error {
	flows, err := t.Flows()
	if err != nil {
		return err
	}
	for _, flow := range flows {
		if !flow.Open {
			if _, err := t.EndQueuedFlow(flow.Flow); err != nil {
				return err
			}
		}
	}
	for _, row := range t.rows {
		if err := t.ReleaseQueued(row.number, math.MaxInt32); err != nil {
			return err
		}
	}
	return nil
}

// LiveSNAT is what the data plane holds. After a restart it is what the tables tell: bounds are the
// widest, until the manager's first message.
func (t *Translator) LiveSNAT() []model.HostSNAT {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]model.HostSNAT, 0, len(t.rows))
	for _, row := range t.rows {
		all = append(all, row.config)
	}
	slices.SortFunc(all, func(a, b model.HostSNAT) int { return a.Key.Compare(b.Key) })
	return all
}
