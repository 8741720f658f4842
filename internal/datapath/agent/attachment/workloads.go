package attachment

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
)

// Workloads are the interfaces behind which workloads live.
type Workloads struct{ c Config }

// NewWorkloads is of what the tables hold.
func NewWorkloads(c Config) *Workloads { return &Workloads{c} }

// SetWorkloads says where each DIP lives: the ifindex of its host-side interface, or 0 for a
// native workload on the host itself. The workload program runs on exactly the interfaces named.
// The addresses refused are no workloads, even if the uplink has them. An interface that can't be
// had, because it has just vanished, is an error, but the others are set.
func (w *Workloads) SetWorkloads(workloads map[netip.Addr]int, refused []netip.Addr) error {
	host, err := findUplink(w.c.Uplink)
	if err != nil {
		return err
	}
	rows := make(map[bpf.AgentAddress]uint32, len(workloads))
	for _, a := range host.addresses { // as clients of local workloads
		rows[bpf.ToAddress(a)] = 0
	}
	for _, a := range refused {
		delete(rows, bpf.ToAddress(a))
	}
	links, indexes := make(map[string]int), make(map[uint32]uint8)
	for dip, ifindex := range workloads {
		rows[bpf.ToAddress(dip)] = uint32(ifindex)
		if ifindex != 0 {
			links[workloadPrefix+strconv.Itoa(ifindex)] = ifindex
			indexes[uint32(ifindex)] = 1
		}
	}
	w.c.Lock.Lock()
	defer w.c.Lock.Unlock()
	// A workload's replies must be rewritten before its first request can arrive.
	attached := w.attachAll(links)
	if err := abi.WriteTable(w.c.Objects.Workloads, rows); err != nil {
		return fmt.Errorf("set workloads: %w", err)
	}
	if err := abi.WriteTable(w.c.Objects.WorkloadLinks, indexes); err != nil {
		return fmt.Errorf("set workloads' interfaces: %w", err)
	}
	return errors.Join(attached, w.detachBut(links))
}

func (w *Workloads) attach(name string, ifindex int) error {
	return w.c.Folder.Attach(name, link.TCXOptions{Interface: ifindex, Program: w.c.Objects.FromWorkload, Attach: ebpf.AttachTCXIngress})
}

func (w *Workloads) attachAll(links map[string]int) error {
	var failed []error
	for name, ifindex := range links {
		failed = append(failed, w.attach(name, ifindex))
	}
	return errors.Join(failed...)
}

func (w *Workloads) detachBut(keep map[string]int) error {
	names, err := w.c.Folder.Names(workloadPrefix)
	failed := []error{err}
	for _, name := range names {
		if _, kept := keep[name]; !kept {
			failed = append(failed, w.c.Folder.Detach(name))
		}
	}
	return errors.Join(failed...)
}

// UpdateLinks has the links of an earlier process run this one's program, and removes
// those whose interface has vanished meanwhile.
func (w *Workloads) UpdateLinks() error {
	names, err := w.c.Folder.Names(workloadPrefix)
	if err != nil {
		return err
	}
	for _, name := range names {
		ifindex, err := strconv.Atoi(strings.TrimPrefix(name, workloadPrefix))
		if err != nil {
			return fmt.Errorf("read link %s: %w", name, err)
		}
		if err := w.attach(name, ifindex); err != nil {
			w.c.Log.Warn("workload's interface is gone", "ifindex", ifindex, "err", err)
			if err := w.c.Folder.Detach(name); err != nil {
				return err
			}
		}
	}
	return nil
}
