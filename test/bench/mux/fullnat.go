package main

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/datapath/mux/nat"
	"github.com/weirlb/weir/internal/datapath/mux/overlay"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/testkit/oracle"
	"github.com/weirlb/weir/internal/testkit/oracle/natstate"
)

// fullNATAttachment is the number of the first attachment with full NAT in the mux.
const fullNATAttachment = 3

// fullNATSlots are the backends that connections with full NAT go to, whatever their hosts run.
func fullNATSlots() map[nat.Slot]nat.Backend {
	all := map[nat.Slot]nat.Backend{}
	for _, service := range networkServices {
		for slot := range backends {
			address := netip.AddrFrom4([4]byte{10, 77, 0, byte(slot)})
			if service.Is6() {
				address = netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 15: byte(slot)})
			}
			at := nat.Slot{Service: service, Port: portCookies, Slot: model.Slot(slot + 1)}
			all[at] = nat.Backend{Address: netip.AddrPortFrom(address, 8080)}
		}
	}
	return all
}

// networkAttachments are those of the network; with full NAT in the mux, too, if nat is true.
func networkAttachments(nat bool) map[uint32]overlay.Attachment {
	all := map[uint32]overlay.Attachment{}
	for i, of := range []family{v4, v6} {
		all[uint32(i+1)] = overlay.Attachment{VNI: networkVNI, VIP: networkVIPs[of], Service: networkServices[of]}
		if nat {
			all[uint32(fullNATAttachment+i)] = overlay.Attachment{
				VNI: networkVNI, VIP: fullNATVIPs[of], Service: networkServices[of], NAT: true, Tenant: networkTenant,
			}
		}
	}
	return all
}

// setFullNAT tells the data plane of backends, hosts and quotas of full NAT.
func setFullNAT(d *mux.Datapath) error {
	return errors.Join(
		setNATAddresses(d, true), d.SetNATBackends(fullNATSlots()),
		d.SetNATHosts([]nat.Host{{Number: networkHost, V4: networkHosts[v4], V6: networkHosts[v6]}}),
		d.SetNATTenant(networkTenant, 1<<30, 1<<30, 1<<30))
}

// setNATAddresses gives the mux its NAT addresses, or takes them: most muxes have none.
func setNATAddresses(d *mux.Datapath, some bool) error {
	if !some {
		return d.SetNATPrefixes(netip.Prefix{}, netip.Prefix{})
	}
	return d.SetNATPrefixes(fullNATPrefixes[v4], fullNATPrefixes[v6])
}

// endSessions ends all sessions of full NAT.
func endSessions(d *mux.Datapath) error {
	return errors.Join(d.SetAttachments(networkAttachments(false)), d.SetAttachments(networkAttachments(true)))
}

// oracleFullNAT is the same for the oracle, without sessions.
func oracleFullNAT(d *mux.Datapath) *oracle.NAT {
	n := &oracle.NAT{
		Table:    natstate.Table{Prefixes: []netip.Prefix{fullNATPrefixes[v4], fullNATPrefixes[v6]}, Sets: d.MaxNATSessions() / nat.Ways},
		Attached: map[oracle.NetworkVIP][6]byte{}, Backends: map[natstate.Slot]netip.AddrPort{},
		Hosts: map[uint32][]netip.Addr{networkHost: {networkHosts[v4], networkHosts[v6]}},
	}
	for _, vip := range fullNATVIPs {
		n.Attached[oracle.NetworkVIP{VNI: networkVNI, VIP: vip}] = [6]byte{}
	}
	for at, b := range fullNATSlots() {
		n.Backends[natstate.Slot(at)] = b.Address
	}
	return n
}

// open makes the connections of so many flows by whole handshakes with full NAT.
func (k *class) open(flows int) error {
	syn := *k
	syn.packet = *k.opens
	if err := syn.restore(); err != nil {
		return err
	}
	action, _, err := k.handshake.Benchmark(syn.frame(), flows, nil)
	if err != nil || action != xdpTX {
		return fmt.Errorf("open connections of %s: action %d, %w", k.name, action, err)
	}
	got, err := k.datapath.NATUsage(networkTenant)
	if err != nil || got.Rows != flows || got.HalfOpen != 0 {
		return fmt.Errorf("open connections of %s: %+v, %w, want %d, none half-open", k.name, got, err, flows)
	}
	return nil
}

// openFirst has the connection of flow 0 be open in the mux and in the oracle.
func (k *class) openFirst(m *oracle.Mux) error {
	if got := m.Handle(k.vxlan.Frame(*k.opens)); got.Verdict != "forward_nat" {
		return fmt.Errorf("the oracle opens no connection: %s", got.Verdict)
	}
	return k.open(1)
}

// fullNATClass is a segment of a client whose connection has full NAT in the mux, towards the backend.
func fullNATClass(of family, client string, v *pkt.VXLAN) class {
	vip := netip.AddrPortFrom(fullNATVIPs[of], portCookies).String()
	syn := linuxSYN(client, vip)
	return class{
		name: networkFullNAT, packet: pkt.TCP(client, vip, pkt.ACK, timestamps(2), pkt.Payload(make([]byte, 100))), opens: &syn, vxlan: v,
		program: benchProgBenchVxlan, beside: "floor-network", empty: "harness-network", action: xdpTX,
	}
}
