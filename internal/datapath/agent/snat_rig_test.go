package agent

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/snat"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// The world of source NAT in the packet tests. A test run's packets come from loopback, whose index is 1.
const (
	crawler4, crawler6 = "203.0.113.20", "2001:db8:1::20"
	guest4, guest6     = "10.1.0.8", "fd01::8" // behind the interface of index 1
	remote4, remote6   = "198.51.100.7:443", "[2001:db8::7]:443"
	otherRemote4       = "198.51.100.8:443"
	remote4GUE         = "198.51.100.7:6080"
	firstRange         = model.Range(200) // ports 1600 to 1607
)

// snatRig is a rig with workloads of both kinds and families that leave as a VIP.
func snatRig(t testing.TB, changes ...func(*model.HostSNAT)) *rig {
	t.Helper()
	r := newRig(t)
	r.fillSNAT(changes...)
	return r
}

func (r *rig) fillSNAT(changes ...func(*model.HostSNAT)) {
	r.t.Helper()
	for _, dip := range []string{guest4, guest6} {
		if err := r.objects.Workloads.Put(bpf.ToAddress(netip.MustParseAddr(dip)), uint32(1)); err != nil {
			r.t.Fatal(err)
		}
	}
	r.listed(changes...)
	err := r.changeSettings(func(s *bpf.AgentAgentSettings) { s.SnatFlows, s.SnatQueueLimit = 1<<18, 4 })
	if err != nil {
		r.t.Fatal(err)
	}
}

// listed sets the workloads, as changed.
func (r *rig) listed(changes ...func(*model.HostSNAT)) {
	r.t.Helper()
	var all []model.HostSNAT
	for i, dip := range []string{native4, guest4, native6, guest6} {
		vip := crawler4
		if i >= 2 {
			vip = crawler6
		}
		s := model.HostSNAT{
			Key:    model.SNATKey{VIP: netip.MustParseAddr(vip), Address: netip.MustParseAddr(dip)},
			Tunnel: netip.MustParseAddr(dip), Ranges: []model.Range{firstRange + model.Range(i%2)},
			Except:    []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fc00::/7")},
			Filtering: model.FilterAddressAndPort, Exhausted: model.ExhaustedReject, MaxPorts: 1024,
		}
		for _, change := range changes {
			change(&s)
		}
		all = append(all, s)
	}
	if err := r.SetSNAT(all, []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}); err != nil {
		r.t.Fatal(err)
	}
}

func ranges(n int) func(*model.HostSNAT) {
	return func(s *model.HostSNAT) {
		first := s.Ranges[0]
		s.Ranges = nil
		for i := range n {
			s.Ranges = append(s.Ranges, first+model.Range(2*i))
		}
	}
}

func filtering(f model.Filtering) func(*model.HostSNAT) {
	return func(s *model.HostSNAT) { s.Filtering = f }
}

// leaves sends a workload's packet and returns it as the network sees it.
func (r *rig) leaves(dip string, p pkt.Packet) pkt.Packet {
	r.t.Helper()
	program, verdict := "to_uplink", "snat_native"
	if dip == guest4 || dip == guest6 {
		program, verdict = "from_workload", "snat_uplink"
	}
	got := r.run(program, p.Frame(), nil)
	if got.verdict != verdict {
		r.t.Fatalf("%v leaves by %s, not %s", p.IP, got.verdict, verdict)
	}
	if want := actionOf(verdict); got.action != want {
		r.t.Errorf("%s: action is %d, not %d", verdict, got.action, want)
	}
	out, err := pkt.Decode(got.frame)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// answered is the remote's answer to a packet as it left, in a mux's tunnel to the workload.
func answered(out pkt.Packet, tunnel string, flags pkt.Flags, changes ...func(*pkt.Packet)) pkt.Packet {
	p := replyTo(out, flags)
	if p.Protocol == layers.IPProtocolTCP {
		p.Seq, p.Ack = 1999, out.Seq+1
	}
	return p.With(changes...).Inside(outer(tunnel))
}

// verdict sends a frame, and says what became of it.
func (r *rig) verdict(program string, p pkt.Packet) string {
	r.t.Helper()
	return r.run(program, p.Frame(), nil).verdict
}

// notice is the next one.
func (r *rig) notice(notices *snat.Notices) snat.Notice {
	r.t.Helper()
	n, err := notices.Read(time.Now().Add(10 * time.Second))
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

func (r *rig) notices() *snat.Notices {
	r.t.Helper()
	notices, err := r.Notices()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { notices.Close() })
	return notices
}

// echo is an echo request or reply with an identifier.
func echo(from, to string, kind uint8, id uint16) []byte {
	ip := message(from, to, kind, []byte("ping"))
	at := 20
	if ip[0]>>4 == 6 {
		at = 40
	}
	binary.BigEndian.PutUint16(ip[at+4:], id)
	binary.BigEndian.PutUint16(ip[at+6:], 1)
	sumEcho(ip, at)
	return ip
}

func sumEcho(ip []byte, at int) {
	ip[at+2], ip[at+3] = 0, 0
	data := ip[at:]
	if at == 40 {
		pseudo := append(append([]byte(nil), ip[8:40]...), 0, 0, ip[4], ip[5], 0, 0, 0, protocolICMP6)
		data = append(pseudo, data...)
	}
	binary.BigEndian.PutUint16(ip[at+2:], sumOf(data))
}

// inTunnel puts an IP packet behind the outer header of a mux.
func inTunnel(ip []byte, tunnel string) []byte {
	from := netip.AddrFrom4([4]byte{192, 0, 2, 9})
	carrier := pkt.UDP(netip.AddrPortFrom(from, 1).String(), "192.0.2.10:1").Inside(outer(tunnel)).Frame()
	head := ethernetHeader + 20
	if netip.MustParseAddr(tunnel).Is6() {
		head = ethernetHeader + 40
	}
	frame := append(append([]byte(nil), carrier[:head]...), ip...)
	o := frame[ethernetHeader:head]
	if o[0]>>4 == 4 {
		binary.BigEndian.PutUint16(o[2:], uint16(20+len(ip)))
		o[9] = 4
		if ip[0]>>4 == 6 {
			o[9] = 41
		}
		o[10], o[11] = 0, 0
		binary.BigEndian.PutUint16(o[10:], sumOf(o))
		return frame
	}
	binary.BigEndian.PutUint16(o[4:], uint16(len(ip)))
	o[6] = 4
	if ip[0]>>4 == 6 {
		o[6] = 41
	}
	return frame
}

func (r *rig) flowCount() int {
	r.t.Helper()
	flows, err := r.Flows()
	if err != nil {
		r.t.Fatal(err)
	}
	return len(flows)
}

func ebpfOptions(in, out []byte) *ebpf.RunOptions {
	return &ebpf.RunOptions{Data: toUs(in), DataOut: out}
}
