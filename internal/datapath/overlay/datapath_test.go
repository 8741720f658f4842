package overlay

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/pkt"
)

const (
	testVNI = 100
	next    = ^uint32(0)
	drop    = uint32(2)
	forward = uint32(7)
)

// family is the ends of a connection: client and VIP in their network, host and mux in the underlay.
type family struct {
	client, vip, service, dip string
	mux, host, other, tunnel  string
}

var (
	inner4 = family{client: "192.168.0.5:40000", vip: "10.99.0.1:80", service: "203.0.113.10:80", dip: "10.1.0.5:8080"}
	inner6 = family{client: "[fd12::5]:40000", vip: "[fd12::99]:80", service: "[2001:db8::10]:80", dip: "[fd01::5]:8080"}
)

func families() map[string]family {
	all := map[string]family{}
	for inner, f := range map[string]family{"v4": inner4, "v6": inner6} {
		f4, f6 := f, f
		f4.mux, f4.host, f4.other, f4.tunnel = "10.0.0.1", "10.2.0.1", "10.2.0.2", "10.1.0.5"
		f6.mux, f6.host, f6.other, f6.tunnel = "fd00::1", "fd02::1", "fd02::2", "fd01::5"
		all[inner+" over v4"], all[inner+" over v6"] = f4, f6
	}
	return all
}

type rig struct {
	t *testing.T
	*Datapath
	family
	key fbt.Key
}

func newRig(t *testing.T, f family) *rig {
	t.Helper()
	return newRigWith(t, f, testConfig)
}

var testConfig = Config{
	Sets: 64, Uplink: 1, MTU: 1500, Seal: [2]uint32{1, 2},
	Local4: netip.MustParsePrefix("100.64.0.0/10"), Local6: netip.MustParsePrefix("fd99::/48"),
}

func newRigWith(t *testing.T, f family, config Config) *rig {
	t.Helper()
	d, err := Open(config)
	if err != nil {
		t.Fatalf("%+v (these tests need root)", err)
	}
	r := &rig{t, d, f, fbt.Key{Secret: [16]byte{1, 2, 3}, ID: 5}}
	t.Cleanup(func() { _ = r.Close() })
	addr, end := netip.MustParseAddr, netip.MustParseAddrPort
	r.must(
		d.SetKeys([]fbt.Key{r.key}),
		d.SetAttachments(map[uint32]Attachment{1: {
			VNI: testVNI, VIP: end(f.vip).Addr(), Service: end(f.service).Addr(), Tenant: 1, GatewayMAC: [6]byte{2, 9},
		}}),
		d.SetRules(map[uint32]Rule{1: {Service: end(f.service), Tunnel: addr(f.tunnel), Backend: end(f.dip)}}),
		d.SetHosts([]Host{
			{Roles: Mux, V4: at(f.mux, true), V6: at(f.mux, false)},
			{Number: 7, Roles: Client, V4: at(f.host, true), V6: at(f.host, false)},
			{Number: 8, Roles: Client, V4: at(f.other, true), V6: at(f.other, false)},
		}),
		d.SetTenant(0, 0, 0, 0), d.SetTenant(1, 3, 3, 2))
	return r
}

func (r *rig) must(errs ...error) {
	r.t.Helper()
	if err := errors.Join(errs...); err != nil {
		r.t.Fatal(err)
	}
}

// at is the address if it is of the family.
func at(a string, v4 bool) netip.Addr {
	if ip := netip.MustParseAddr(a); ip.Is4() == v4 {
		return ip
	}
	return netip.Addr{}
}

func (r *rig) run(p *ebpf.Program, frame []byte, verdict string, action uint32) []byte {
	r.t.Helper()
	before, err := r.Verdicts()
	if err != nil {
		r.t.Fatal(err)
	}
	options := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
	got, err := p.Run(options)
	if err != nil {
		r.t.Fatal(err)
	}
	after, err := r.Verdicts()
	if err != nil {
		r.t.Fatal(err)
	}
	for name := range after {
		if moved := after[name].Packets - before[name].Packets; (moved == 1) != (name == verdict) {
			r.t.Errorf("verdict %s counted %d, want %s", name, moved, verdict)
		}
	}
	if got != action {
		r.t.Errorf("action %d, want %d", got, action)
	}
	return options.DataOut
}

// fromMux is a segment with an FBT that names a host.
func (r *rig) fromMux(p pkt.Packet, host uint32, key fbt.Key) []byte {
	segment := fbt.Segment{
		Outer: netip.MustParseAddr(r.tunnel), Seq: p.Seq,
		Client: netip.AddrPortFrom(p.IP.Source, p.SourcePort), VIP: netip.AddrPortFrom(p.IP.Destination, p.DestinationPort),
	}
	option := fbt.Encode(key, segment, fbt.Content{VNI: testVNI, Number: host})
	return r.carry(p.With(func(p *pkt.Packet) { p.Options = append(fbtOption(option), p.Options...) }), r.mux)
}

func (r *rig) carry(p pkt.Packet, from string) []byte {
	v := pkt.VXLAN{VNI: testVNI, SourcePort: 50000, Outer: pkt.IP{
		Source: netip.MustParseAddr(from), Destination: netip.MustParseAddr(r.tunnel), TTL: 64,
	}}
	return v.Frame(p)
}

func (r *rig) segment(flags pkt.Flags, seq, ack uint32, changes ...func(*pkt.Packet)) pkt.Packet {
	return pkt.TCP(r.client, r.vip, flags, changes...).With(func(p *pkt.Packet) { p.Seq, p.Ack = seq, ack })
}

func (r *rig) decode(frame []byte) pkt.Packet {
	r.t.Helper()
	p, err := pkt.Decode(frame)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// A connection as it goes: the SYN by a mux, the answer straight to the client's host, then all straight.
func TestAConnectionBypassesTheMux(t *testing.T) {
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, f)
			in := r.segment(pkt.SYN, 1000, 0, pkt.MSS(1460), pkt.Payload(nil))
			syn := r.decode(r.run(r.objects.FromUnderlay, r.fromMux(in, 7, r.key), "deliver_native", next))
			local := syn.IP.Source
			if got := netip.AddrPortFrom(syn.IP.Destination, syn.DestinationPort).String(); got != f.dip || len(syn.Options) != 1 {
				t.Fatalf("delivered to %s with options %v", got, syn.Options)
			}
			s, err := r.session()
			if err != nil || s.Host != 7 || s.ClientNext != 1001 || s.Client.String() != f.client {
				t.Fatalf("session %+v, %v", s, err)
			}
			answer := pkt.TCP(f.dip, netip.AddrPortFrom(local, 40000).String(), pkt.SYN|pkt.ACK, pkt.MSS(1460), pkt.Payload(nil)).
				With(func(p *pkt.Packet) { p.Seq, p.Ack = 5000, 1001 })
			v, out, err := pkt.DecodeVXLAN(r.run(r.objects.ToUnderlay, answer.Frame(), "reply", forward))
			if err != nil {
				t.Fatal(err)
			}
			if v.VNI != testVNI || v.Outer.Source.String() != f.tunnel || v.Outer.Destination.String() != f.host || out.Destination != in.Source {
				t.Errorf("answered in %+v to %x", v, out.Destination)
			}
			want := pkt.TCP(f.vip, f.client, pkt.SYN|pkt.ACK, pkt.MSS(clamped(f)), pkt.Payload(nil)).
				With(func(p *pkt.Packet) { p.Seq, p.Ack, p.Source, p.Destination = 5000, 1001, out.Source, out.Destination })
			if diff := cmp.Diff(want, out, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			ack := r.segment(pkt.ACK, 1001, 5001)
			r.decode(r.run(r.objects.FromUnderlay, r.carry(ack, f.host), "deliver_native", next))
			if s, _ = r.session(); s.Events != ClientACK|ServerAnswer || s.ServerNext != 5001 {
				t.Errorf("session %+v", s)
			}
			r.run(r.objects.FromUnderlay, r.carry(ack, f.other), "drop_other_host", drop)
			r.run(r.objects.FromUnderlay, r.fromMux(ack, 8, r.key), "deliver_native", next)
			if s, _ = r.session(); s.Host != 8 {
				t.Errorf("the client has moved, its session says %+v", s)
			}
		})
	}
}

func clamped(f family) uint16 {
	bound := 1500 - 20 - 16 - 50 - 20
	if !netip.MustParseAddr(f.tunnel).Is4() {
		bound -= 20
	}
	if !netip.MustParseAddrPort(f.vip).Addr().Is4() {
		bound -= 20
	}
	return uint16(bound)
}

func (r *rig) session() (Session, error) {
	for s := range r.All() {
		return s, nil
	}
	return Session{}, errors.New("no session")
}

func TestWhatIsForgedIsRefused(t *testing.T) {
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, f)
			in := r.objects.FromUnderlay
			syn := r.segment(pkt.SYN, 1000, 0, pkt.Payload(nil))
			forged := r.key
			forged.Secret[15] ^= 1
			r.run(in, r.fromMux(syn, 7, forged), "drop_fbt_forged", drop)
			forged = fbt.Key{Secret: r.key.Secret, ID: 6}
			r.run(in, r.fromMux(syn, 7, forged), "drop_fbt_key", drop)
			r.run(in, r.carry(syn, f.mux), "drop_fbt_missing", drop)
			r.run(in, r.carry(syn, f.host), "drop_syn_past_mux", drop)
			r.run(in, r.fromMux(syn, 0, r.key), "drop_fbt_host", drop)
			stranger := "10.7.7.7"
			if !netip.MustParseAddr(f.tunnel).Is4() {
				stranger = "fd07::7"
			}
			r.run(in, r.carry(syn, stranger), "drop_not_a_vtep", drop)
			elsewhere := syn.With(func(p *pkt.Packet) { p.IP.Destination = p.IP.Destination.Next() })
			r.run(in, r.fromMux(elsewhere, 7, r.key), "pass_not_ours", next)
			if s, err := r.session(); err == nil {
				t.Errorf("a session was made: %+v", s)
			}
		})
	}
}

func TestSegmentsOfNoSessionAreReset(t *testing.T) {
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, f)
			out := r.run(r.objects.FromUnderlay, r.carry(r.segment(pkt.ACK, 1001, 5001), f.host), "reset_client", forward)
			v, p, err := pkt.DecodeVXLAN(out)
			if err != nil || v.Outer.Destination.String() != f.host || p.Flags != pkt.RST || p.Seq != 5001 || p.IP.Source.String() != netip.MustParseAddrPort(f.vip).Addr().String() {
				t.Errorf("reset %+v in %+v, %v", p, v, err)
			}
			r.run(r.objects.FromUnderlay, r.carry(r.segment(pkt.RST, 1001, 0), f.host), "drop_no_session", drop)
			local := "100.64.0.9:40000"
			if !netip.MustParseAddrPort(f.vip).Addr().Is4() {
				local = "[fd99::9]:40000"
			}
			out = r.run(r.objects.ToUnderlay, pkt.TCP(f.dip, local, pkt.ACK).Frame(), "reset_server_native", forward)
			if p := r.decode(out); p.Flags != pkt.RST || p.Seq != 2000 || len(p.Payload) != 0 {
				t.Errorf("reset %+v", p)
			}
		})
	}
}

func fbtOption(o [fbt.Length]byte) []layers.TCPOption {
	return []layers.TCPOption{{OptionType: fbt.Kind, OptionLength: fbt.Length, OptionData: o[2:]}}
}
