package benchlab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirlb/weir/internal/lab/netlab"
)

// Used is the CPU's time that a node has used so far, and the memory that it holds.
type Used struct {
	Programs time.Duration // of its eBPF programs, while somebody has the kernel count it
	Daemon   time.Duration
	Resident uint64 // bytes of the daemon
	Tables   uint64 // bytes of the maps of its programs
}

// UsedBy reads what a node's programs in the kernel and its daemon have used.
func UsedBy(lab *netlab.Lab, node, daemon string) (u Used, err error) {
	process, err := lab.Process(node, daemon)
	if err != nil {
		return u, err
	}
	if u.Daemon, err = ProcessTime(process.PID); err != nil {
		return u, err
	}
	if u.Resident, err = Resident(process.PID); err != nil {
		return u, err
	}
	pins, err := filepath.Glob(filepath.Join(lab.PinPath(node), "live", "*"))
	if err != nil {
		return u, err
	}
	programs, tables := map[ebpf.ProgramID]bool{}, map[ebpf.MapID]bool{} // one may be attached to many interfaces
	for _, pin := range pins {
		attached, err := link.LoadPinnedLink(pin, nil)
		if err != nil {
			continue // something else is pinned there
		}
		info, err := attached.Info()
		_ = attached.Close()
		if err != nil {
			return u, err
		}
		if programs[info.Program] {
			continue
		}
		programs[info.Program] = true
		if err := u.addProgram(info.Program, tables); err != nil {
			return u, err
		}
	}
	return u, nil
}

func (u *Used) addProgram(id ebpf.ProgramID, tables map[ebpf.MapID]bool) error {
	program, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return err
	}
	defer program.Close()
	stats, err := program.Stats()
	if err != nil {
		return err
	}
	u.Programs += stats.Runtime
	info, err := program.Info()
	if err != nil {
		return err
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		if tables[id] {
			continue
		}
		tables[id] = true
		bytes, err := tableBytes(id)
		if err != nil {
			return err
		}
		u.Tables += bytes
	}
	return nil
}

func tableBytes(id ebpf.MapID) (uint64, error) {
	table, err := ebpf.NewMapFromID(id)
	if err != nil {
		return 0, err
	}
	info, err := table.Info()
	if err := errors.Join(err, table.Close()); err != nil {
		return 0, err
	}
	bytes, _ := info.Memlock() // not known of one that is empty: it takes none
	return bytes, nil
}

const tick = 10 * time.Millisecond // of /proc (USER_HZ)

// ProcessTime is what a process has used, in user space and for its own in the kernel (proc(5)).
func ProcessTime(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	var ticks uint64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

// Resident is the memory that a process holds, in bytes (proc(5)).
func Resident(pid int) (uint64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseUint(strings.Fields(string(data))[1], 10, 64)
	return pages * uint64(os.Getpagesize()), err
}

// Machine is what all CPUs have done so far.
type Machine struct{ Busy, SoftIRQ, All time.Duration }

// MachineUsed reads it (proc_stat(5)).
func MachineUsed() (m Machine, err error) {
	const idle, waiting, softIRQ = 3, 4, 6
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return m, err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	for i, field := range strings.Fields(line)[1:9] {
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return m, err
		}
		took := time.Duration(n) * tick
		m.All += took
		if i != idle && i != waiting {
			m.Busy += took
		}
		if i == softIRQ {
			m.SoftIRQ += took
		}
	}
	return m, nil
}
