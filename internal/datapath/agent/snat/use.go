package snat

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
)

// Use is how a workload uses its ports.
type Use struct {
	Key         model.SNATKey
	Tunnel      netip.Addr
	Ranges      []model.Range    // in order, those that are to be given up included
	Written     model.Generation // at which the manager last changed these
	Flows, Held int
	Begun       uint64        // flows that found a port at once, since the workload was listed
	PortsInUse  int           // that any flow uses
	Idle        []IdleRange   // no flow uses them
	Most        []Destination // with the most flows, those first
}

// IdleRange is a range that no flow uses.
type IdleRange struct {
	Range model.Range
	Since time.Duration // on the clock of Now
}

// Destination is what flows of a workload go to. Of ICMP the port is 0.
type Destination struct {
	Protocol model.Protocol
	Remote   netip.AddrPort
	Flows    int
}

// mostDestinations bounds Use.Most.
const mostDestinations = 10

// SNATUse tells of all workloads that leave as a VIP, in order. Without whole, ports in use and destinations
// are left out, which are counted from tables as large as there are connections.
func (t *Translator) SNATUse(whole bool) ([]Use, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.rows) == 0 {
		return nil, nil
	}
	var most map[uint32][]Destination
	var used map[uint32]int
	var err error
	if whole {
		if most, err = t.destinations(); err != nil {
			return nil, err
		}
		if used, err = t.usedPorts(); err != nil {
			return nil, err
		}
	}
	all := make([]Use, 0, len(t.rows))
	for _, row := range t.rows {
		var state bpf.AgentSnatStat
		if err := t.objects.SnatStats.Lookup(row.number, &state); err != nil {
			return nil, fmt.Errorf("read state of %s: %w", row.config.Key, err)
		}
		use := Use{
			Key: row.config.Key, Tunnel: row.config.Tunnel, Ranges: row.config.Ranges, Written: row.config.Written, Flows: int(int32(state.Rows[bpf.AgentSnatTableSNAT_TABLE_FLOWS])), Begun: state.Begun, Held: int(int32(state.Queued)),
			PortsInUse: used[row.number], Most: most[row.number],
		}
		if use.Idle, err = t.idleRanges(row); err != nil {
			return nil, err
		}
		all = append(all, use)
	}
	slices.SortFunc(all, func(a, b Use) int { return a.Key.Compare(b.Key) })
	return all, nil
}

// idleRanges are those that no flow uses.
func (t *calls) idleRanges(row *snatRow) ([]IdleRange, error) {
	var idle []IdleRange
	for _, r := range row.config.Ranges {
		key := bpf.AgentSnatBlockKey{Workload: row.number, Block: uint32(r) / rangesOfBlock}
		var owned bpf.AgentSnatBlock
		err := t.objects.SnatBlocks.Lookup(key, &owned)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read ports of %s: %w", row.config.Key, err)
		}
		if at := uint32(r) % rangesOfBlock; owned.Flows[at] == 0 {
			idle = append(idle, IdleRange{r, time.Duration(owned.UsedAt[at])})
		}
	}
	return idle, nil
}

func (t *calls) destinations() (map[uint32][]Destination, error) {
	most := make(map[uint32][]Destination)
	err := abi.EachBatched(t.objects.SnatDests, func(key bpf.AgentSnatTargetKey, target bpf.AgentSnatTarget) {
		remote := bpf.FromAddrPort(key.Remote, key.RemotePort)
		if int32(target.Live) <= 0 || key.Remote == (bpf.AgentAddress{}) {
			return
		}
		most[key.Workload] = append(most[key.Workload], Destination{model.Protocol(key.Protocol), remote, int(target.Live)})
	})
	if err != nil {
		return nil, fmt.Errorf("read destinations: %w", err)
	}
	for workload, all := range most {
		slices.SortFunc(all, func(a, b Destination) int {
			return cmp.Or(cmp.Compare(b.Flows, a.Flows), a.Remote.Compare(b.Remote), cmp.Compare(a.Protocol, b.Protocol))
		})
		most[workload] = all[:min(len(all), mostDestinations)]
	}
	return most, nil
}

// usedPorts counts each workload's ports that are in use towards anybody.
func (t *calls) usedPorts() (map[uint32]int, error) {
	type block struct{ workload, number uint32 }
	in := make(map[block]uint64)
	err := abi.EachBatched(t.objects.SnatBlockUse, func(key bpf.AgentSnatUsedKey, used uint64) {
		in[block{key.Target.Workload, key.Block}] |= used
	})
	if err != nil {
		return nil, fmt.Errorf("read ports in use: %w", err)
	}
	counts := make(map[uint32]int)
	for at, used := range in {
		counts[at.workload] += bits.OnesCount64(used)
	}
	return counts, nil
}

// Translation is a workload's own connection.
type Translation struct {
	Flow
	External netip.AddrPort // not set while it waits for a port
	Open     bool
	LastSeen time.Duration // of the workload, on the clock of Now
}

// String is "TCP 10.1.0.2:40000 → 198.51.100.7:443 as 203.0.113.20:1024".
func (t Translation) String() string { return fmt.Sprintf("%s as %s", t.Flow, t.External) }

// Flows lists workloads' own connections. Of a mapping that does not depend on the remote there is a row
// with the unset address as one, too.
func (t *calls) Flows() ([]Translation, error) {
	var all []Translation
	err := eachFlow(t.objects.SnatFlows, func(key bpf.AgentSessionKey, flow bpf.AgentSnatFlow) {
		t := Translation{Flow: fromFlowKey(key), Open: flow.Queued&uint32(bpf.AgentSnatFlowStateSNAT_OPEN) != 0, LastSeen: time.Duration(flow.LastSeen)}
		if flow.VipPort != 0 {
			t.External = bpf.FromAddrPort(flow.Vip, flow.VipPort)
		}
		all = append(all, t)
	})
	return all, err
}

func eachFlow(table *ebpf.Map, visit func(bpf.AgentSessionKey, bpf.AgentSnatFlow)) error {
	if err := abi.EachBatched(table, visit); err != nil {
		return fmt.Errorf("read flows: %w", err)
	}
	return nil
}
