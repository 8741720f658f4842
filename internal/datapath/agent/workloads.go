package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
)

// linkPrefix begins the names of from_workload's links; the ifindex ends them.
const linkPrefix = "from_workload_"

// SetWorkloads says where each DIP lives: the ifindex of its host-side interface, or 0 for a
// native workload on the host itself. The workload program runs on exactly the interfaces named.
// The addresses refused are no workloads, even if the uplink has them. An interface that can't be
// had, because it has just vanished, is an error, but the others are set.
func (d *Datapath) SetWorkloads(workloads map[netip.Addr]int, refused []netip.Addr) error {
	host, err := findUplink(d.config.Uplink)
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
			links[linkPrefix+strconv.Itoa(ifindex)] = ifindex
			indexes[uint32(ifindex)] = 1
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// A workload's replies must be rewritten before its first request can arrive.
	attached := d.attachWorkloads(links)
	if err := bpf.WriteTable(d.objects.Workloads, rows); err != nil {
		return fmt.Errorf("set workloads: %w", err)
	}
	if err := bpf.WriteTable(d.objects.WorkloadLinks, indexes); err != nil {
		return fmt.Errorf("set workloads' interfaces: %w", err)
	}
	return errors.Join(attached, d.detachWorkloads(links))
}

func (d *Datapath) attachWorkloads(links map[string]int) error {
	var failed []error
	for name, ifindex := range links {
		err := d.attach(name, ifindex, d.objects.FromWorkload, ebpf.AttachTCXIngress)
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

func (d *Datapath) detachWorkloads(keep map[string]int) error {
	names, err := d.folder.Names(linkPrefix)
	failed := []error{err}
	for _, name := range names {
		if _, kept := keep[name]; !kept {
			failed = append(failed, d.detach(name))
		}
	}
	return errors.Join(failed...)
}

// updateWorkloadLinks has the links of an earlier process run this one's program, and removes
// those whose interface has vanished meanwhile.
func (d *Datapath) updateWorkloadLinks() error {
	names, err := d.folder.Names(linkPrefix)
	if err != nil {
		return err
	}
	for _, name := range names {
		ifindex, err := strconv.Atoi(strings.TrimPrefix(name, linkPrefix))
		if err != nil {
			return fmt.Errorf("read link %s: %w", name, err)
		}
		if err := d.attach(name, ifindex, d.objects.FromWorkload, ebpf.AttachTCXIngress); err != nil {
			d.config.Log.Warn("workload's interface is gone", "ifindex", ifindex, "err", err)
			if err := d.detach(name); err != nil {
				return err
			}
		}
	}
	return nil
}
