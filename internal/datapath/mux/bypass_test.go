package mux

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/overlay"
	"github.com/weirlb/weir/internal/datapath/pin"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// server is the data plane of a server's host, which takes what a mux sends.
type server struct {
	datapath *overlay.Datapath
	program  *ebpf.Program
}

// newServer is host 1 of the oracle's world, with a backend of an endpoint behind a tunnel.
func newServer(t *testing.T, service netip.AddrPort, tunnel, backend string) *server {
	t.Helper()
	ns := netns.New(t, fmt.Sprintf("wbypass%d", os.Getpid()))
	pins := fmt.Sprintf("/sys/fs/bpf/weir-bypass-%d", os.Getpid())
	s := &server{}
	_, keys := oracleKeys()
	err := ns.Do(func() (err error) {
		if err := netns.Veth(ns, "uplink", ns, "network"); err != nil {
			return err
		}
		uplink, err := ns.Index("uplink")
		if err != nil {
			return err
		}
		s.datapath, err = overlay.Open(overlay.Config{
			PinPath: pins, Sets: 64, Uplink: uplink, MTU: testMTU, Seal: [2]uint32{1, 2},
			Local4: netip.MustParsePrefix("100.64.0.0/10"), Local6: netip.MustParsePrefix("fd99::/48"),
		})
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = s.datapath.Unload() })
		attachments := map[uint32]overlay.Attachment{}
		for number, a := range oracleAttachments {
			attachments[number] = overlay.Attachment{VNI: a.VNI, VIP: a.VIP, Service: a.Service, Tenant: 1}
		}
		rule := overlay.Rule{Service: service, Tunnel: netip.MustParseAddr(tunnel), Backend: netip.MustParseAddrPort(backend)}
		return errors.Join(
			s.datapath.SetKeys(keys[1]), s.datapath.SetAttachments(attachments), s.datapath.SetRules(map[uint32]overlay.Rule{1: rule}),
			s.datapath.SetHosts([]overlay.Host{
				{Roles: overlay.Mux, V4: source4, V6: source6},
				{Number: 7, Roles: overlay.Client, V4: oracleHosts[0].Addresses[0], V6: oracleHosts[0].Addresses[1]},
			}),
			s.datapath.SetTenant(1, 1000, 1000, 1000))
	})
	if err != nil {
		t.Fatal(err)
	}
	attached, err := link.LoadPinnedLink(pin.Live(pins, "from_underlay"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer attached.Close()
	info, err := attached.Info()
	if err != nil {
		t.Fatal(err)
	}
	if s.program, err = ebpf.NewProgramFromID(info.Program); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.program.Close() })
	return s
}

// receive is what the host says of a frame from a mux; empty: the kernel's test run does not take the frame.
func (s *server) receive(t *testing.T, frame []byte) (verdict string) {
	t.Helper()
	before, err := s.datapath.Verdicts()
	if err != nil {
		t.Fatal(err)
	}
	frame = append(make([]byte, 6), frame[6:]...) // to the MAC of the test run's interface
	if _, err := s.program.Run(&ebpf.RunOptions{Data: frame}); errors.Is(err, unix.EINVAL) {
		return ""
	} else if err != nil {
		t.Fatal(err)
	}
	after, err := s.datapath.Verdicts()
	if err != nil {
		t.Fatal(err)
	}
	for name, counter := range after {
		if counter.Packets != before[name].Packets {
			verdict = name
		}
	}
	return verdict
}

// The server's host takes what the mux sends, and nothing that differs from it in the FBT or under the MAC.
func TestServersHostTakesTheMuxsSegments(t *testing.T) {
	for name, c := range map[string]struct{ client, vip, service, tunnel, backend string }{
		"v4 in v4": {tenant4, tenantVIP4, vip4, tunnel4, "10.1.0.5:8080"},
		"v4 in v6": {tenant4, tenantVIP4, vip4, tunnel6, "10.1.0.5:8080"},
		"v6 in v6": {tenant6, tenantVIP6, vip6, tunnel6, "[fd01::5]:8080"},
		"v6 in v4": {tenant6, tenantVIP6, vip6, tunnel4, "[fd01::5]:8080"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(c.service, model.TCP, c.tunnel)
			e.Backends[0].Host = 1
			d := newFilledOf(t, testSizes, e)
			setNetworks(t, d)
			s := newServer(t, netip.MustParseAddrPort(c.service), c.tunnel, c.backend)
			syn := pkt.TCP(c.client, c.vip, pkt.SYN, pkt.TOS(2), pkt.Payload(nil), pkt.MSS(1300), pkt.Timestamps(1, 0), pkt.NOP(2))
			action, sent := run(t, d, inVXLAN(syn, agentHost).Frame(syn))
			checkAction(t, action, xdpTX)
			forged(t, s, sent)
			if got := s.receive(t, sent); got != "deliver_native" {
				t.Fatalf("the host says %s of\n%x", got, sent)
			}
			ack := syn.With(func(p *pkt.Packet) { p.Flags, p.Seq = pkt.ACK, p.Seq+1 })
			action, sent = run(t, d, inVXLAN(ack, agentHost).Frame(ack))
			checkAction(t, action, xdpTX)
			if got := s.receive(t, sent); got != "deliver_native" {
				t.Fatalf("the host says %s of\n%x", got, sent)
			}
			// Another network's client with the same address and port is another one.
			v := inVXLAN(syn, agentHost)
			v.VNI = 0xabcdef
			if _, sent = run(t, d, v.Frame(syn)); s.receive(t, sent) != "deliver_native" {
				t.Error("the host refuses a client of the other network")
			}
			n := 0
			for range s.datapath.All() {
				n++
			}
			if n != 2 {
				t.Errorf("the host has %d sessions, want 2", n)
			}
		})
	}
}

// forged has the host refuse the frame with each bit turned over that the MAC is of: of the FBT, of addresses and ports of
// the segment, of its number.
func forged(t *testing.T, s *server, sent []byte) {
	t.Helper()
	option := bytes.Index(sent, []byte{253, 16, 0x57, 0x52})
	if option < 0 {
		t.Fatalf("no FBT in %x", sent)
	}
	for at := option - 20; at < option+16; at++ {
		if at >= option-12 && at < option { // of TCP only ports and sequence number
			continue
		}
		for bit := range 8 {
			frame := bytes.Clone(sent)
			frame[at] ^= 1 << bit
			if got := s.receive(t, frame); got == "deliver_native" {
				t.Errorf("byte %d, bit %d: taken", at-option, bit)
			}
		}
	}
}
