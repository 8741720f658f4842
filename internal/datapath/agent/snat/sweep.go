package snat

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/session"
)

// sweepPiece is how many rows one run of the sweep's program visits, for the kernel can't preempt it.
const sweepPiece = 1024

// SweepSNAT ends workloads' own connections that have been idle for longer than their state allows, and divides the
// tables anew by what tenants have.
func (t *Translator) SweepSNAT(now time.Duration, timeouts session.Timeouts) (session.SNATReport, error) {
	c := bpf.AgentSnatSweepCall{
		Now: uint64(now), Syn: uint64(timeouts.SYN), Established: uint64(timeouts.Established), Closing: uint64(timeouts.Closing),
		Reset: uint64(timeouts.Reset), Udp: uint64(timeouts.SNATUDP), Icmp: uint64(timeouts.ICMP),
	}
	if err := t.SweepRows(&c); err != nil {
		return session.SNATReport{}, fmt.Errorf("sweep flows: %w", err)
	}
	sessionReport := session.SNATReport{Live: int(c.Live), Ended: int(c.Ended)}
	var err error
	if c.Doubtful > 0 {
		if sessionReport.Doubtful, err = t.doubtfulFlows(now, timeouts); err != nil {
			return sessionReport, err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	sessionReport.Tenants, sessionReport.Refused, err = t.Shares.settle(t.rows)
	return sessionReport, err
}

// doubtfulFlows are the keepalive probes for workloads of flows that were reset, maybe by a forged segment.
func (t *calls) doubtfulFlows(now time.Duration, timeouts session.Timeouts) (session.Probes, error) {
	var due session.Probes
	err := eachFlow(t.objects.SnatFlows, func(key bpf.AgentSessionKey, flow bpf.AgentSnatFlow) {
		doubtful := flow.Events&bpf.AgentSnatEventSNAT_REMOTE_RESET != 0
		if doubtful && now-time.Duration(flow.LastSeen) >= timeouts.Reset {
			due = append(due, session.Probe{
				From: bpf.FromAddrPort(key.Client, key.ClientPort), To: bpf.FromAddrPort(key.Dip, key.DipPort),
				Seq: flow.RemoteNext - 1, Ack: flow.WorkloadSeq,
			})
		}
	})
	return due, err
}

func (t *calls) endFlowsOf(workload uint32) error {
	if err := t.SweepRows(&bpf.AgentSnatSweepCall{Workload: workload}); err != nil {
		return fmt.Errorf("end flows: %w", err)
	}
	return nil
}

// SweepRows has the program visit all rows of source NAT, piece by piece, and adds up its results in c. Rows that stay
// are counted once; one that is made or goes meanwhile may be missed or seen twice.
func (t *calls) SweepRows(c *bpf.AgentSnatSweepCall) error {
	t.sweeping.Lock()
	defer t.sweeping.Unlock()
	run := func(table bpf.AgentSnatTable, keys int) error {
		c.Table, c.Keys = table, uint32(keys)
		return bpf.Call(t.objects.SnatSweep, c)
	}
	if err := run(Tables, 0); err != nil {
		return err
	}
	o := t.objects
	for table, sweep := range [Tables]func(func(keys int) error) error{
		func(run func(int) error) error {
			return eachPiece[bpf.AgentSessionKey, bpf.AgentSnatFlow](o.SnatFlows, o.SweptFlows, run)
		},
		func(run func(int) error) error {
			return eachPiece[bpf.AgentSnatPortKey, bpf.AgentSnatPort](o.SnatPorts, o.SweptPorts, run)
		},
		func(run func(int) error) error {
			return eachPiece[bpf.AgentSnatTargetKey, bpf.AgentSnatTarget](o.SnatDests, o.SweptTargets, run)
		},
		func(run func(int) error) error {
			return eachPiece[bpf.AgentSnatUsedKey, uint64](o.SnatBlockUse, o.SweptUsed, run)
		},
	} {
		has, err := t.hasRows(c.Workload, table)
		if err == nil && has {
			err = sweep(func(keys int) error { return run(bpf.AgentSnatTable(table), keys) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hasRows says whether a workload has rows in a table; 0 is any workload.
func (t *calls) hasRows(workload uint32, table int) (bool, error) {
	if workload == 0 {
		return true, nil
	}
	var state bpf.AgentSnatStat
	err := t.objects.SnatStats.Lookup(workload, &state)
	return state.Rows[table] != 0, err
}

// eachPiece writes the keys of a table to swept, a piece at a time, and runs the program for each.
func eachPiece[K, V any](table, swept *ebpf.Map, run func(keys int) error) error {
	keys, rows, places := make([]K, sweepPiece), make([]V, sweepPiece), make([]uint32, sweepPiece)
	for i := range places {
		places[i] = uint32(i)
	}
	var cursor ebpf.MapBatchCursor
	for {
		n, err := table.BatchLookup(&cursor, keys, rows, nil)
		last := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !last {
			return err
		}
		if n > 0 {
			if _, err := swept.BatchUpdate(places[:n], keys[:n], nil); err != nil {
				return err
			}
			if err := run(n); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
}
