package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/look"
)

// Config says what a Tracer works on.
type Config struct {
	Tables    *bpf.Tables
	Programs  *bpf.Programs
	Sizes     bpf.Sizes
	Link      func() link.Link // nil: not attached
	Ready     func() error     // for tables that do not forward yet
	Lock      *sync.Mutex      // guards Endpoints
	Endpoints *endpoint.Table
}

// Tracer runs packets through the program, or has it copy those that come.
type Tracer struct {
	Config
	sender    sender
	explainer explainer
	capturing turns // of Capture
}

// New traces nothing yet.
func New(c Config) *Tracer { return &Tracer{Config: c} }

// Close lets go of what was loaded and opened.
func (t *Tracer) Close() error { return errors.Join(t.explainer.close(), t.sender.close()) }

// Program is the program mux_trace, loaded with the live tables.
type Program struct {
	Program  *ebpf.Program `ebpf:"mux_trace"`
	Records  *ebpf.Map     `ebpf:"trace_records"`
	Captured *ebpf.Map     `ebpf:"captured"`
	Lost     *ebpf.Map     `ebpf:"lost"`
	Filter   *ebpf.Map     `ebpf:".data.trace"`
}

// Close lets go of it.
func (l *Program) Close() error {
	return errors.Join(l.Program.Close(), l.Records.Close(), l.Captured.Close(), l.Lost.Close(), l.Filter.Close())
}

// Spec says what mux_trace is loaded for.
type Spec struct {
	Mode       bpf.MuxTraceMode
	Filter     bpf.MuxTraceFilter
	SnapLength int
	Buffer     uint32 // bytes of the ring that holds copies; a power of two of pages
}

const SmallestBuffer = 4096

// Load loads mux_trace. A program that only explains gets counters, and rings to user space, of its own: what
// it writes there nobody reads.
func (at Spec) Load(sizes bpf.Sizes, live *bpf.Tables) (*Program, error) {
	spec, err := sizes.Spec()
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]any{
		bpf.MuxVarCfgTrace: at.Mode, bpf.MuxVarCfgSnapLength: uint32(at.SnapLength), bpf.MuxVarTraceFilter: at.Filter,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	spec.Maps[bpf.MuxMapCaptured].MaxEntries = at.Buffer
	options := ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{}}
	for _, table := range live.Pinned() {
		kind := spec.Maps[table.Object].Type
		if at.Mode == bpf.MuxTraceModeTRACE_EXPLAIN && (kind == ebpf.PerCPUArray || kind == ebpf.RingBuf) {
			continue
		}
		options.MapReplacements[table.Object] = *table.Handle
	}
	l := &Program{}
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
	case "forward_syn", "forward_known", "forward_bucket", "forward_failover", "forward_untracked", "forward_chained":
		return "bucket"
	case "forward_snat":
		return look.LayerSNAT
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

// ActionName is what people call an action of XDP.
func ActionName(action uint32, verdict string) string {
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
func (t *Tracer) explanation(l bpf.MuxTrace) look.Explanation {
	e := look.Explanation{Verdict: t.Tables.VerdictNames[uint32(l.Verdict)]}
	e.Action = ActionName(l.Action, e.Verdict)
	if bpf.FromAddress(l.Destination).IsUnspecified() {
		return e
	}
	t.Lock.Lock()
	defer t.Lock.Unlock()
	key := model.EndpointKey{VIP: bpf.FromAddress(l.Destination), Port: abi.Port(l.DestinationPort), Protocol: model.Protocol(l.Protocol)}
	live := t.Endpoints.Live[key]
	if live == nil && t.Endpoints.SNAT.Has(key.VIP) && t.Endpoints.Live[allPorts(key)] == nil {
		return t.explainSNAT(e, l, key)
	}
	if live == nil {
		key = allPorts(key) // takes what has no endpoint of its own
		live = t.Endpoints.Live[key]
	}
	if live == nil {
		return e
	}
	e.Endpoint, e.Buckets = &key, len(live.Buckets)
	if e.Tunnel = bpf.FromAddress(l.Tunnel); e.Tunnel.IsUnspecified() {
		e.Tunnel = netip.Addr{}
		return e
	}
	e.Layer = layerOf(t.Tables.VerdictNames[uint32(l.Forward)])
	e.Slot, e.Previous = slotOf(live, e.Tunnel), slotOf(live, bpf.FromAddress(l.Previous))
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
func (t *Tracer) explainSNAT(e look.Explanation, l bpf.MuxTrace, key model.EndpointKey) look.Explanation {
	e.Endpoint = &key
	if tunnel := bpf.FromAddress(l.Tunnel); !tunnel.IsUnspecified() {
		e.Tunnel, e.Layer = tunnel, look.LayerSNAT
	}
	if who, known := t.Endpoints.SNAT.WorkloadOf(key.VIP, key.Port); known {
		e.Workload = who.Address
	}
	return e
}

// slotOf is the slot of the backend behind the tunnel, or 0.
func slotOf(e *endpoint.Live, tunnel netip.Addr) model.Slot {
	for _, b := range e.Backends {
		if b.Tunnel == tunnel {
			return b.Slot
		}
	}
	return 0
}

// Comment tells a person what e says beside the verdict.
func Comment(e look.Explanation) string {
	if e.Layer == "" {
		return ""
	}
	var text bytes.Buffer
	text.WriteString(e.Layer)
	if e.Layer == look.LayerSNAT {
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
