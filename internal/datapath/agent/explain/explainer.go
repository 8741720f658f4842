package explain

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model/look"
)

// Explainer runs packets, one at a time.
type Explainer struct {
	live *bpf.AgentObjects
	mu   sync.Mutex
}

// New explains by the live tables, which may be loaded later.
func New(live *bpf.AgentObjects) *Explainer { return &Explainer{live: live} }

// Explain says what the host makes of a frame, from the Ethernet header on, that a mux, a switch or another host sent it. It
// must be called in the uplink's network namespace.
func (x *Explainer) Explain(frame []byte) (look.Explanation, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, err := x.explain(frame)
	if err != nil {
		return e, fmt.Errorf("explain a packet: %w", err)
	}
	return e, nil
}

func (x *Explainer) explain(frame []byte) (look.Explanation, error) {
	// The first run finds out which rows the packet meets, the second meets them.
	var met rows
	err := with(x.live, func(p *programs) (err error) {
		if _, err = p.inbound(frame); err == nil {
			met, err = p.rows()
		}
		return err
	})
	if err != nil {
		return look.Explanation{}, err
	}
	var e look.Explanation
	err = with(x.live, func(p *programs) (err error) {
		if err = met.copy(x.live, p); err == nil {
			e, err = p.explain(frame)
		}
		return err
	})
	return e, err
}

// explain runs a frame, and an answer of the workload if it gets it.
func (p *programs) explain(frame []byte) (look.Explanation, error) {
	e, err := p.inbound(frame)
	if err != nil || e.Action != look.ActionDeliver {
		return e, err
	}
	ifindex, err := p.workload(&e)
	if err != nil {
		return e, err
	}
	answer, there := answerTo(e.Frame)
	if !there {
		return e, nil
	}
	reply, err := p.outbound(answer, ifindex)
	e.Reply = &reply
	return e, err
}

// with loads the programs for as long as do runs.
func with(live *bpf.AgentObjects, do func(*programs) error) error {
	p, err := load(live)
	if err != nil {
		return err
	}
	return errors.Join(do(p), p.close())
}

// programs are the agent's, by its tables but for those that packets change: these are new and empty.
type programs struct {
	FromUplink   *ebpf.Program `ebpf:"from_uplink"`
	ToUplink     *ebpf.Program `ebpf:"to_uplink"`
	FromWorkload *ebpf.Program `ebpf:"from_workload"`
	RxCtxs       *ebpf.Map     `ebpf:"rx_ctxs"`
	Verdicts     *ebpf.Map     `ebpf:"verdicts"`
	Sessions     *ebpf.Map     `ebpf:"sessions"`
	NewSessions  *ebpf.Map     `ebpf:"new_sessions"`
	SnatPorts    *ebpf.Map     `ebpf:"snat_ports"`
	SnatFlows    *ebpf.Map     `ebpf:"snat_flows"`
	Workloads    *ebpf.Map     `ebpf:"workloads"`

	names abi.Verdicts
}

func (p *programs) close() (err error) {
	for _, closer := range []interface{ Close() error }{
		p.FromUplink, p.ToUplink, p.FromWorkload, p.RxCtxs, p.Verdicts, p.Sessions, p.NewSessions, p.SnatPorts, p.SnatFlows, p.Workloads,
	} {
		err = errors.Join(err, closer.Close())
	}
	return err
}

// few is how many rows a table has that packets change: those of one packet.
const few = 64

// load loads the programs.
func load(live *bpf.AgentObjects) (*programs, error) {
	spec, err := bpf.LoadAgent()
	if err != nil {
		return nil, fmt.Errorf("read agent's programs: %w", err)
	}
	p := &programs{}
	if p.names, err = abi.VerdictsOf(spec); err != nil {
		return nil, err
	}
	for _, table := range spec.Maps {
		if table.Type == ebpf.Hash || table.Type == ebpf.LRUHash {
			table.MaxEntries = few
		}
	}
	for _, program := range spec.Programs {
		sendNothing(program)
	}
	options := ebpf.CollectionOptions{MapReplacements: readOnly(live)}
	for name, table := range options.MapReplacements {
		spec.Maps[name].MaxEntries, spec.Maps[name].Flags = table.MaxEntries(), table.Flags()
	}
	if err := copyVariables(live, spec); err != nil {
		return nil, err
	}
	if err := spec.LoadAndAssign(p, &options); err != nil {
		return nil, fmt.Errorf("load agent's programs once more: %w", err)
	}
	return p, nil
}

// sendNothing takes the helper out that sends in a test run too: it copies a packet to the interface at once.
func sendNothing(program *ebpf.ProgramSpec) {
	for i, in := range program.Instructions {
		if in.IsBuiltinCall() && asm.BuiltinFunc(in.Constant) == asm.FnCloneRedirect {
			program.Instructions[i] = asm.Mov.Imm(asm.R0, 0).WithMetadata(in.Metadata)
		}
	}
}

// readOnly are the tables that packets only read. The others change with packets.
func readOnly(o *bpf.AgentObjects) map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		"chain_peers": o.ChainPeers, "mptcp_homes": o.MptcpHomes, "mptcp_quotas": o.MptcpQuotas, "muxes": o.Muxes, "nat_rules": o.NatRules,
		"session_quotas": o.SessionQuotas, "snat_exempts": o.SnatExempts, "snat_workloads": o.SnatWorkloads,
		"steer_backends": o.SteerBackends, "steer_buckets": o.SteerBuckets, "steer_endpoints": o.SteerEndpoints,
		"steer_locals": o.SteerLocals, "steer_relays": o.SteerRelays, "steer_sources": o.SteerSources,
		"tunnels": o.Tunnels, "vip_tenants": o.VipTenants, "workload_links": o.WorkloadLinks, "workloads": o.Workloads,
	}
}

// copyVariables has the programs begin with the live settings and keys.
func copyVariables(live *bpf.AgentObjects, spec *ebpf.CollectionSpec) error {
	var settings bpf.AgentAgentSettings
	var hash, pool bpf.AgentFlowhashKey
	var secrets bpf.AgentSynSecrets
	for name, variable := range map[string]struct {
		live *ebpf.Variable
		to   any
	}{
		bpf.AgentVarSettings: {live.Settings, &settings}, bpf.AgentVarHashKey: {live.HashKey, &hash},
		bpf.AgentVarPoolKey: {live.PoolKey, &pool}, bpf.AgentVarSynSecrets: {live.SynSecrets, &secrets},
	} {
		if err := variable.live.Get(variable.to); err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if err := spec.Variables[name].Set(variable.to); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// inbound runs a frame that comes in by the uplink.
func (p *programs) inbound(frame []byte) (look.Explanation, error) {
	return p.run(p.FromUplink, frame, nil)
}

// outbound runs a frame that a workload sends, from behind its interface or, if that is 0, from the host itself.
func (p *programs) outbound(frame []byte, ifindex uint32) (look.Explanation, error) {
	if ifindex == 0 {
		return p.run(p.ToUplink, frame, nil)
	}
	return p.run(p.FromWorkload, frame, &skb{Ifindex: ifindex})
}

// skb is struct __sk_buff of the kernel, of which a test run takes only this.
type skb struct {
	_       [10]uint32
	Ifindex uint32
	_       [37]uint32
}

// growth is room for what the programs put before a frame.
const growth = 256

// run gives the frame to a program, as if it were addressed to the test run's interface.
func (p *programs) run(program *ebpf.Program, frame []byte, context *skb) (e look.Explanation, err error) {
	to, err := addressOf(context)
	if err != nil {
		return e, err
	}
	before, err := p.names.Read(p.Verdicts)
	if err != nil {
		return e, err
	}
	options := &ebpf.RunOptions{Data: append(to, frame[len(to):]...), DataOut: make([]byte, len(frame)+growth)}
	if context != nil {
		options.Context = context
	}
	action, err := program.Run(options)
	if err != nil {
		return e, fmt.Errorf("run %s on %d bytes: %w", program, len(frame), err)
	}
	after, err := p.names.Read(p.Verdicts)
	if err != nil {
		return e, err
	}
	for name, counter := range after {
		if counter != before[name] {
			e.Verdict = name
		}
	}
	e.Action, e.Frame = actionName(action, e.Verdict), options.DataOut
	return e, nil
}

// addressOf is the Ethernet address of the interface that a test run is at: without one it is loopback, which has none.
func addressOf(context *skb) ([]byte, error) {
	if context == nil {
		return make([]byte, 6), nil
	}
	link, err := net.InterfaceByIndex(int(context.Ifindex))
	if err != nil {
		return nil, fmt.Errorf("find the workload's interface: %w", err)
	}
	if len(link.HardwareAddr) != 6 {
		return make([]byte, 6), nil
	}
	return append([]byte(nil), link.HardwareAddr...), nil
}

// workload notes where the packet that e delivers goes, and returns the interface; 0: the host itself.
func (p *programs) workload(e *look.Explanation) (ifindex uint32, err error) {
	delivered, ok := readHeader(e.Frame)
	if !ok {
		return 0, fmt.Errorf("read what is delivered: %d bytes that are no IP packet", len(e.Frame))
	}
	e.Workload = delivered.destination
	if err := p.Workloads.Lookup(bpf.ToAddress(e.Workload), &ifindex); err != nil {
		return 0, fmt.Errorf("find the workload %s: %w", e.Workload, err)
	}
	if ifindex == 0 {
		return 0, nil
	}
	link, err := net.InterfaceByIndex(int(ifindex))
	if err != nil {
		return 0, fmt.Errorf("find the interface of the workload %s: %w", e.Workload, err)
	}
	e.Interface = link.Name
	return ifindex, nil
}
