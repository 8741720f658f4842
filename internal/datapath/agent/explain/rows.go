package explain

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
)

// rows are the keys by which a packet may meet rows that packets make.
type rows struct {
	session bpf.AgentSessionKey
	ports   []bpf.AgentSnatPortKey // of source NAT: of its remote, of any port of it, of any remote
}

// rows are those of the packet that ran last.
func (p *programs) rows() (met rows, err error) {
	var all []bpf.AgentRxCtx
	if err := p.RxCtxs.Lookup(uint32(0), &all); err != nil {
		return met, fmt.Errorf("read what the program noted: %w", err)
	}
	for _, a := range all { // one for each CPU, of which one ran
		if a.Inner.L3Length == 0 {
			continue
		}
		in := a.Inner
		met.session = bpf.AgentSessionKey{
			Client: in.Source, Dip: a.Rule.Dip, ClientPort: in.SourcePort, DipPort: a.Rule.Port, Protocol: in.Protocol,
		}
		if a.Rule.Port == 0 { // takes all ports as they are
			met.session.DipPort = in.DestinationPort
		}
		port := bpf.AgentSnatPortKey{
			Vip: in.Destination, Remote: in.Source, Port: in.DestinationPort, RemotePort: in.SourcePort, Protocol: in.Protocol,
		}
		address, any := port, port
		address.RemotePort = 0
		any.RemotePort, any.Remote = 0, bpf.AgentAddress{}
		met.ports = []bpf.AgentSnatPortKey{port, address, any}
	}
	return met, nil
}

// copy copies the rows that are there.
func (r rows) copy(live *bpf.AgentObjects, to *programs) error {
	var session bpf.AgentSession
	err := errors.Join(
		copyRow(live.Sessions, to.Sessions, r.session, &session),
		copyRow(live.NewSessions, to.NewSessions, r.session, &session))
	for _, key := range r.ports {
		var port bpf.AgentSnatPort
		err = errors.Join(err, copyRow(live.SnatPorts, to.SnatPorts, key, &port))
		if port.Workload == 0 {
			continue
		}
		flow := bpf.AgentSessionKey{
			Client: key.Remote, Dip: port.Dip, ClientPort: key.RemotePort, DipPort: port.DipPort, Protocol: key.Protocol,
		}
		err = errors.Join(err, copyRow(live.SnatFlows, to.SnatFlows, flow, &bpf.AgentSnatFlow{}))
	}
	return err
}

// copyRow copies a row by way of value, if it is there.
func copyRow(from, to *ebpf.Map, key, value any) error {
	err := from.Lookup(key, value)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	if err == nil {
		err = to.Put(key, value)
	}
	if err != nil {
		return fmt.Errorf("copy a row of %s: %w", from, err)
	}
	return nil
}
