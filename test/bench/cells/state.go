package main

import (
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/admission"
	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/testkit/benchlab"
	"github.com/weirlb/weir/internal/wire"
)

const (
	hostsPer    = 10 // VIPs for each host
	stateMuxes  = 32
	changes     = 300
	stateTenant = "default"
)

// sample is what the desired state of a cell's manager takes at one size: the real code of admission and tables, without
// etcd, streams and statuses.
type sample struct {
	vips, hosts      int
	heap             uint64        // bytes
	loaded           time.Duration // all VIPs, admitted and computed one after the other
	change           time.Duration // median of one change
	all              time.Duration // a look at all tables, as a new leader takes it
	snapshot, stored int           // bytes that a mux is sent at its start, and of the documents in the store
}

// measureState fills a state up to each of the sizes, which grow, and writes a row for each.
func measureState(out io.Writer, sizes []int) error {
	debug.SetGCPercent(25)
	most := slices.Max(sizes)
	s := &desired.State{}
	for i := range stateMuxes {
		s.PutNode(model.Node{Name: fmt.Sprintf("mux%d", i+1), Role: model.RoleMux, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{9, 0, 0, byte(i + 1)})}})
	}
	hosts := max(most/hostsPer, 1)
	for i := range hosts {
		s.PutNode(model.Node{Name: benchlab.HostName(i), Role: model.RoleHost, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{9, byte(1 + i>>16), byte(i >> 8), byte(i)})}})
	}
	fmt.Fprintln(out, "| VIPs | hosts | heap | of it for a VIP | one change | all tables | a mux's snapshot | documents |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|")
	empty, at := heap(), 0
	began := time.Now()
	for _, size := range sizes {
		for ; at < size; at++ {
			if err := change(s, at, 0, hosts); err != nil {
				return err
			}
		}
		row, err := sampleOf(s, size, hosts)
		if err != nil {
			return err
		}
		row.loaded = time.Since(began)
		mib := func(n float64) string { return fmt.Sprintf("%.0f MiB", n/(1<<20)) }
		fmt.Fprintf(out, "| %d | %d | %s | %.1f kB | %s | %s | %s | %s |\n", row.vips, row.hosts, mib(float64(row.heap)),
			float64(row.heap-empty)/float64(row.vips)/1000, row.change.Round(time.Microsecond), row.all.Round(time.Millisecond),
			mib(float64(row.snapshot)), mib(float64(row.stored)))
	}
	return nil
}

// change admits VIP number i with its tables, as a manager does.
func change(s *desired.State, i, round, hosts int) error {
	vip, err := compile.VIP(benchlab.VIP(i, round, hosts, stateTenant))
	if err != nil {
		return err
	}
	next := s.Clone()
	admitted, err := admission.VIPs(next, []model.VIP{vip}, false)
	if err != nil {
		return err
	}
	next.PutVIP(admitted[0])
	for key, table := range next.ChangedTables(admitted[0], time.Now(), nil, nil) {
		desired.PutTable(&next, key, table)
	}
	*s = next
	return nil
}

// heap is what is in use after a collection.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func sampleOf(s *desired.State, size, hosts int) (sample, error) {
	row := sample{vips: size, hosts: hosts, heap: heap()}
	var took []time.Duration
	for i := range changes {
		began := time.Now()
		if err := change(s, i*7919%size, 1+i%3, hosts); err != nil {
			return row, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	row.change = took[len(took)/2]
	began := time.Now()
	for vip := range s.VIPs.Values() {
		s.ChangedTables(vip, began, nil, nil)
	}
	row.all = time.Since(began)
	for vip := range s.VIPs.Values() {
		var update wire.MuxUpdate
		for _, e := range vip.Endpoints {
			update.Endpoints = append(update.Endpoints, nodeconfig.MuxEndpoint(*s, vip, e))
			document, err := codec.Encode(codec.NewTableDocument(s.Tables.At(desired.Key(vip, e))))
			if err != nil {
				return row, err
			}
			row.stored += len(document)
		}
		row.snapshot += proto.Size(wire.MuxUpdateToProto(update))
		document, err := codec.EncodeMessage(nil, compile.VIPMessage(vip))
		if err != nil {
			return row, err
		}
		row.stored += len(document)
	}
	return row, nil
}
