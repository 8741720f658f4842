package mux

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// tracer is the program mux_trace, loaded with the live tables.
type tracer struct {
	Program  *ebpf.Program `ebpf:"mux_trace"`
	Records  *ebpf.Map     `ebpf:"trace_records"`
	Captured *ebpf.Map     `ebpf:"captured"`
	Lost     *ebpf.Map     `ebpf:"lost"`
	Filter   *ebpf.Map     `ebpf:".data.trace"`
}

func (l *tracer) Close() error {
	return errors.Join(l.Program.Close(), l.Records.Close(), l.Captured.Close(), l.Lost.Close(), l.Filter.Close())
}

// traceSpec says what mux_trace is loaded for.
type traceSpec struct {
	mode       bpf.MuxTraceMode
	filter     bpf.MuxTraceFilter
	snapLength int
	buffer     uint32 // bytes of the ring that holds copies; a power of two of pages
}

const smallestBuffer = 4096

// load loads mux_trace. A program that only explains gets counters, and rings to user space, of its own: what
// it writes there nobody reads.
func (at traceSpec) load(sizes bpf.Sizes, live *bpf.Tables) (*tracer, error) {
	spec, err := sizes.Spec()
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]any{
		bpf.MuxVarCfgTrace: at.mode, bpf.MuxVarCfgSnapLength: uint32(at.snapLength), bpf.MuxVarTraceFilter: at.filter,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	spec.Maps[bpf.MuxMapCaptured].MaxEntries = at.buffer
	options := ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{}}
	for _, table := range live.Pinned() {
		kind := spec.Maps[table.Object].Type
		if at.mode == bpf.MuxTraceModeTRACE_EXPLAIN && (kind == ebpf.PerCPUArray || kind == ebpf.RingBuf) {
			continue
		}
		options.MapReplacements[table.Object] = *table.Handle
	}
	l := &tracer{}
	if err := spec.LoadAndAssign(l, &options); err != nil {
		return nil, fmt.Errorf("load the trace program: %w", err)
	}
	return l, nil
}

// decodeTrace reads the trace of a packet.
func decodeTrace(raw []byte) (l bpf.MuxTrace, rest []byte, err error) {
	n, err := binary.Decode(raw, binary.LittleEndian, &l)
	if err != nil {
		return l, nil, fmt.Errorf("read the trace: %w", err)
	}
	return l, raw[n:], nil
}

// layerOf says what chose the backend of packets that count as the verdict.
func layerOf(forward string) string {
	switch forward {
	case "forward_cookie":
		return "cookie"
	case "forward_flow":
		return "flow table"
	case "forward_syn", "forward_bucket", "forward_failover", "forward_untracked", "forward_chained":
		return "bucket"
	case "forward_snat":
		return model.LayerSNAT
	}
	return ""
}

// XDP's actions, as programs return them.
const (
	actionDrop     = 1
	actionPass     = 2
	actionTransmit = 3
	actionRedirect = 4
)

func actionName(action uint32, verdict string) string {
	switch {
	case action == actionPass:
		return "pass"
	case action == actionTransmit || action == actionRedirect:
		return "transmit"
	case strings.HasPrefix(verdict, "punt"):
		return "punt"
	case action == actionDrop:
		return "drop"
	}
	return fmt.Sprintf("action %d", action)
}

// explanation is what l says, with what the tables hold now.
func (d *Datapath) explanation(l bpf.MuxTrace) model.Explanation {
	e := model.Explanation{Verdict: d.tables.VerdictNames[uint32(l.Verdict)]}
	e.Action = actionName(l.Action, e.Verdict)
	if bpf.FromAddress(l.Destination).IsUnspecified() {
		return e
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	key := model.EndpointKey{VIP: bpf.FromAddress(l.Destination), Port: abi.Port(l.DestinationPort), Protocol: model.Protocol(l.Protocol)}
	live := d.live[key]
	if live == nil && d.snat.vips[key.VIP] != nil && d.live[allPorts(key)] == nil {
		return d.explainSNAT(e, l, key)
	}
	if live == nil {
		key = allPorts(key) // takes what has no endpoint of its own
		live = d.live[key]
	}
	if live == nil {
		return e
	}
	e.Endpoint, e.Buckets = &key, len(live.buckets)
	if e.Tunnel = bpf.FromAddress(l.Tunnel); e.Tunnel.IsUnspecified() {
		e.Tunnel = netip.Addr{}
		return e
	}
	e.Layer = layerOf(d.tables.VerdictNames[uint32(l.Forward)])
	e.Slot, e.Previous = live.slotOf(e.Tunnel), live.slotOf(bpf.FromAddress(l.Previous))
	if e.Buckets > 0 && e.Layer != "cookie" {
		e.Hashed, e.Hash, e.Bucket = true, l.Hash, int(l.Hash)&(e.Buckets-1)
	}
	return e
}

func allPorts(key model.EndpointKey) model.EndpointKey {
	key.Port = model.AllPorts
	return key
}

// explainSNAT says whose the port is.
func (d *Datapath) explainSNAT(e model.Explanation, l bpf.MuxTrace, key model.EndpointKey) model.Explanation {
	e.Endpoint = &key
	if tunnel := bpf.FromAddress(l.Tunnel); !tunnel.IsUnspecified() {
		e.Tunnel, e.Layer = tunnel, model.LayerSNAT
	}
	if who, known := d.workloadOf(key.VIP, key.Port); known {
		e.Workload = who.Address
	}
	return e
}

// slotOf is the slot of the backend behind the tunnel, or 0.
func (e *liveEndpoint) slotOf(tunnel netip.Addr) model.Slot {
	for _, b := range e.backends {
		if b.Tunnel == tunnel {
			return b.Slot
		}
	}
	return 0
}

// comment tells a person what e says beside the verdict.
func comment(e model.Explanation) string {
	if e.Layer == "" {
		return ""
	}
	var text bytes.Buffer
	text.WriteString(e.Layer)
	if e.Layer == model.LayerSNAT {
		fmt.Fprintf(&text, " %d, workload %s, tunnel %s", model.RangeOf(e.Endpoint.Port), e.Workload, e.Tunnel)
		return text.String()
	}
	if e.Layer == "bucket" {
		fmt.Fprintf(&text, " %d of %d", e.Bucket, e.Buckets)
	}
	fmt.Fprintf(&text, ", slot %d, tunnel %s", e.Slot, e.Tunnel)
	if e.Previous != 0 {
		fmt.Fprintf(&text, ", previous slot %d", e.Previous)
	}
	return text.String()
}
