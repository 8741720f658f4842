package agent

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/pkt"
)

// What lives behind the interface of index 1 besides the guests, by the routes of sourceRig's namespace.
const behind4, behind6 = "10.1.9.5", "fd01:9::5"

const offsetOfIngress = 36 // in struct __sk_buff

// sourceRig is a rig that looks at sources. Its packets are of a namespace of their own, that forwards.
func sourceRig(t *testing.T) (*rig, *netns.NS) {
	t.Helper()
	ns := netns.New(t, fmt.Sprintf("wsource%d", os.Getpid()))
	for _, err := range []error{
		ns.SetUp("lo"),
		ns.Sysctl("net.ipv4.ip_forward", "1"), ns.Sysctl("net.ipv6.conf.all.forwarding", "1"),
		ns.AddLinkRoute(netip.MustParsePrefix("10.1.9.0/24"), "lo"), ns.AddLinkRoute(netip.MustParsePrefix("fd01:9::/64"), "lo"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	r := snatRig(t)
	r.checkSources(1)
	return r, ns
}

func (r *rig) checkSources(on uint32) {
	r.t.Helper()
	if err := r.changeSettings(func(s *bpf.AgentAgentSettings) { s.CheckSources = on }); err != nil {
		r.t.Fatal(err)
	}
}

// in runs a program as if the frame had come to the namespace.
func (r *rig) in(ns *netns.NS, program string, frame, skb []byte) (got outcome) {
	r.t.Helper()
	err := ns.Do(func() error {
		got = r.run(program, frame, skb)
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

// From a workload's interface gets through what lives behind it, and what is no business of ours.
func TestForgedSources(t *testing.T) {
	r, ns := sourceRig(t)
	syn := func(from, to string) []byte { return pkt.TCP(from, to, pkt.SYN).Frame() }
	arp := with(syn(crawler4+":1", remote4), func(f []byte) { f[12], f[13] = 0x08, 0x06 })
	quoted := quote(pkt.UDP("198.51.100.7:443", crawler4+":1600"), 48)
	for _, c := range []struct {
		name  string
		frame []byte
		want  string
	}{
		{"its own", syn(guest4+":50000", remote4), "snat_uplink"},
		{"its own, v6", syn(own(guest6, 50000), remote6), "snat_uplink"},
		{"a neighbour's, not listed", syn(behind4+":50000", remote4), "pass_no_session"},
		{"a neighbour's, not listed, v6", syn(own(behind6, 50000), remote6), "pass_no_session"},
		{"its VIP", syn(crawler4+":1600", remote4), "drop_spoofed_source"},
		{"its VIP, v6", syn(own(crawler6, 1600), remote6), "drop_spoofed_source"},
		{"another VIP", syn(vip4, remote4), "drop_spoofed_source"},
		{"its VIP in a datagram", pkt.UDP(crawler4+":1600", remote4).Frame(), "drop_spoofed_source"},
		{"its VIP in a ping", asFrame(echo(crawler4, "198.51.100.7", echo4, 1600)), "drop_spoofed_source"},
		{"its VIP in a ping, v6", asFrame(echo(crawler6, "2001:db8::7", echo6, 1600)), "drop_spoofed_source"},
		{"its VIP in an answer to a ping", asFrame(echo(crawler4, "198.51.100.7", 0, 1600)), "drop_spoofed_source"},
		{"its VIP in an error", asFrame(message(crawler4, "198.51.100.7", unreachable4, quoted)), "drop_spoofed_source"},
		{"its VIP in a first fragment", piece(pkt.UDP(crawler4+":1600", remote4), 0, true).Frame(), "drop_spoofed_source"},
		{"its VIP in a later fragment", piece(pkt.UDP(crawler4+":1600", remote4), 5, false).Frame(), "drop_spoofed_source"},
		{"a native workload's", syn(native4+":50000", remote4), "drop_spoofed_source"},
		{"a workload's behind another interface", syn(interface4+":50000", remote4), "drop_spoofed_source"},
		{"a workload's behind another interface, v6", syn(own(interface6, 50000), remote6), "drop_spoofed_source"},
		{"anybody's", syn("192.0.2.55:50000", remote4), "drop_spoofed_source"},
		{"anybody's, v6", syn("[2001:db8:55::1]:50000", remote6), "drop_spoofed_source"},
		{"none yet, for DHCP", pkt.UDP("0.0.0.0:68", "255.255.255.255:67").Frame(), "pass_no_session"},
		{"none yet, for neighbour discovery", asFrame(message("::", "ff02::1:ff00:5", 135, make([]byte, 20))), "pass_other"},
		{"one of the link", pkt.UDP("[fe80::5]:5353", "[ff02::fb]:5353").Frame(), "pass_no_session"},
		{"one of the link, v4", pkt.UDP("169.254.7.7:5353", "224.0.0.251:5353").Frame(), "pass_no_session"},
		{"none at all: ARP", arp, "pass_other"},
		{"in a VLAN", pkt.TCP("192.0.2.55:50000", remote4, pkt.SYN, pkt.VLANs(5)).Frame(), "drop_tagged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.t = t
			got := r.in(ns, "from_workload", c.frame, nil)
			if got.verdict != c.want || got.action != actionOf(c.want) {
				t.Fatalf("verdict is %s with %d, not %s", got.verdict, got.action, c.want)
			}
			if c.want != "snat_uplink" && !bytes.Equal(got.frame, c.frame) {
				t.Error("the frame was changed")
			}
			if c.want != "drop_spoofed_source" {
				return
			}
			r.checkSources(0)
			if got := r.in(ns, "from_workload", c.frame, nil); got.verdict == "drop_spoofed_source" && c.name != "a native workload's" {
				t.Error("it is dropped where sources are not looked at")
			}
			r.checkSources(1)
		})
	}
}

// A reply by another's address is no reply: nothing becomes of it, nor of the session.
func TestForgedReplies(t *testing.T) {
	r, ns := sourceRig(t)
	for _, c := range []struct{ client, vip, dip string }{{client4, vip4, interface4}, {client6, vip6, interface6}} {
		in := pkt.TCP(c.client, c.vip, pkt.SYN).Inside(outer(c.dip))
		if got := r.in(ns, "from_uplink", in.Frame(), nil); got.verdict != "deliver_interface" {
			t.Fatalf("the client's SYN is %s", got.verdict)
		}
		arrived := delivered(in, c.dip)
		answer, reset := replyTo(arrived, pkt.SYN|pkt.ACK).Frame(), replyTo(arrived, pkt.RST).Frame()
		passing := func(ifindex uint32) []byte {
			skb := make([]byte, sizeOfSKB)
			binary.NativeEndian.PutUint32(skb[offsetOfIngress:], ifindex)
			return skb
		}
		for _, forged := range []outcome{
			r.in(ns, "from_workload", answer, nil), r.in(ns, "from_workload", reset, nil),
			r.in(ns, "to_uplink", answer, passing(5)), r.in(ns, "to_uplink", reset, passing(5)),
		} {
			if forged.verdict != "drop_spoofed_source" {
				t.Errorf("a reply as %s is %s", c.dip, forged.verdict)
			}
		}
		sessions, err := r.Sessions()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range sessions {
			if s.Backend.Addr().String() == c.dip && s.State != session.StateSYN {
				t.Errorf("the session of %s is %s after what was forged", c.dip, s.State)
			}
		}
		if got := r.in(ns, "to_uplink", answer, passing(interfaceIndex)); got.verdict != "reply_native" {
			t.Errorf("from where %s lives, a reply is %s", c.dip, got.verdict)
		}
		if err := r.objects.Workloads.Put(bpf.ToAddress(netip.MustParseAddr(c.dip)), uint32(1)); err != nil {
			t.Fatal(err)
		}
		if got := r.in(ns, "from_workload", answer, nil); got.verdict != "reply_uplink" {
			t.Errorf("behind its interface, a reply of %s is %s", c.dip, got.verdict)
		}
	}
}
