package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/bucket"
	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/model"
)

const (
	manyEndpoints = 100_000
	manyBackends  = 10 // of each
	manyHosts     = 1000
	manyVIPs      = 1000
	replacements  = 400

	snatPorts  = 10_000_000
	manyRanges = 64 // of a workload
)

// memory is what many endpoints take, and what it costs to replace the table of one of them.
type memory struct {
	Endpoints int               `json:"endpoints"`
	Backends  int               `json:"backends_of_each"`
	Buckets   int               `json:"buckets_of_each"`
	Tables    map[string]uint64 `json:"table_bytes"`
	Kernel    uint64            `json:"kernel_bytes"` // of all tables
	Heap      uint64            `json:"heap_bytes"`   // of the data plane's owner, after a collection
	Ports     int               `json:"snat_ports"`
	SNAT      uint64            `json:"snat_bytes"` // of Kernel, for source NAT
	Load      time.Duration     `json:"load_ns"`
	Replace   replaceCost       `json:"replace"`
}

// replaceCost is CPU time of the whole process for one endpoint's new table.
type replaceCost struct {
	Median time.Duration `json:"median_ns"`
	P99    time.Duration `json:"p99_ns"`
	Mean   time.Duration `json:"mean_ns"` // with the collector's share
}

// measureMemory fills a data plane with many endpoints and replaces tables of some.
func measureMemory() (m memory, err error) {
	w, err := openWorld(mux.Config{
		MaxEndpoints: manyEndpoints, MaxBuckets: manyEndpoints * bucket.Size(0, manyBackends),
		MaxBackends:  manyEndpoints * 16, // they are rounded up to powers of two: so there is room to replace
		MaxSNATPorts: snatPorts,
	})
	if err != nil {
		return m, err
	}
	defer func() { _ = w.Close() }()
	before := heap()
	start := time.Now()
	if err := w.fillWith(manyTables(), manyWorkloads()); err != nil {
		return m, err
	}
	m = memory{
		Endpoints: manyEndpoints, Backends: manyBackends, Buckets: bucket.Size(0, manyBackends),
		Load: time.Since(start), Heap: heap() - before,
	}
	if m.Tables, err = w.tableBytes(); err != nil {
		return m, err
	}
	m.Ports, m.SNAT = snatPorts, m.Tables["snat_ranges"]+m.Tables["snat_owners"]
	for _, bytes := range m.Tables {
		m.Kernel += bytes
	}
	m.Replace, err = w.replaceSome()
	return m, err
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// manyTables has endpoints with backends and buckets of their own.
func manyTables() []model.MuxEndpoint {
	all := make([]model.MuxEndpoint, manyEndpoints)
	for i := range all {
		all[i] = manyEndpoint(i, 0)
	}
	return all
}

// manyEndpoint is the i-th; turn makes its backends' buckets others.
func manyEndpoint(i, turn int) model.MuxEndpoint {
	vip := netip.AddrFrom4([4]byte{203, byte(i % manyVIPs >> 8), byte(i % manyVIPs), 1})
	e := model.MuxEndpoint{
		Key: model.EndpointKey{VIP: vip, Protocol: model.TCP, Port: uint16(1 + i/manyVIPs)},
	}
	for n := range manyBackends {
		host := (i*7 + n*13) % manyHosts
		e.Backends = append(e.Backends, model.MuxBackend{
			Slot: model.Slot(n + 1), Tunnel: netip.AddrFrom4([4]byte{10, byte(host >> 8), byte(host), byte(n)}),
		})
	}
	size := bucket.Size(0, manyBackends)
	e.Buckets = make([]model.Slot, size)
	for b := range e.Buckets {
		e.Buckets[b] = model.Slot((b*(i%251+1)+turn)%manyBackends + 1)
	}
	return e
}

// tableBytes is the kernel's memory for each table, as it accounts for it.
func (w *world) tableBytes() (map[string]uint64, error) {
	sizes := map[string]uint64{}
	live := filepath.Join(w.pinPath, "live")
	entries, err := os.ReadDir(live)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	for _, entry := range entries {
		table, err := ebpf.LoadPinnedMap(filepath.Join(live, entry.Name()), nil)
		if err != nil {
			continue // the program, or its attachment
		}
		sizes[entry.Name()], err = tableSize(table)
		_ = table.Close()
		if err != nil {
			return nil, fmt.Errorf("look at table %s: %w", entry.Name(), err)
		}
	}
	return sizes, nil
}

func tableSize(table *ebpf.Map) (uint64, error) {
	info, err := table.Info()
	if err != nil {
		return 0, err
	}
	bytes, _ := info.Memlock()
	return bytes, nil
}

func (w *world) replaceSome() (cost replaceCost, err error) {
	var each []time.Duration
	runtime.GC()
	start, err := processTime()
	if err != nil {
		return cost, err
	}
	for turn := range replacements {
		e := []model.MuxEndpoint{manyEndpoint(turn*241%manyEndpoints, turn+1)}
		before, err := processTime()
		if err != nil {
			return cost, err
		}
		if err := w.datapath.Apply(e, nil); err != nil {
			return cost, err
		}
		after, err := processTime()
		if err != nil {
			return cost, err
		}
		each = append(each, after-before)
	}
	end, err := processTime()
	slices.Sort(each)
	return replaceCost{
		Median: each[len(each)/2], P99: each[len(each)*99/100], Mean: (end - start) / replacements,
	}, err
}

// processTime is the CPU time of all threads of this process, in user and in kernel mode.
func processTime() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		return 0, fmt.Errorf("read the process's clock: %w", err)
	}
	return time.Duration(t.Nano()), nil
}
