package diagnosis

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/wire"
)

// What is told of a packet is what was put into it, of both families, with tags, options, extension headers and fragments.
func TestReadHeaders(t *testing.T) {
	syn := pkt.TCP("198.51.100.7:40000", "203.0.113.10:80", pkt.SYN)
	syn6 := pkt.TCP("[2001:db8::7]:40000", "[2001:db8:113::10]:80", pkt.SYN|pkt.ACK)
	udp := pkt.UDP("198.51.100.7:53", "203.0.113.10:53")
	hop := pkt.InsertHeader(syn6.Frame(), protocolHopByHop, []byte{protocolTCP, 0, 0, 0, 0, 0, 0, 0})
	for _, c := range []struct {
		name  string
		frame []byte
		want  string
	}{
		{"TCP", syn.Frame(), "TCP 198.51.100.7:40000 203.0.113.10:80 SYN"},
		{"two tags", syn.With(pkt.VLANs(5, 6)).Frame(), "TCP 198.51.100.7:40000 203.0.113.10:80 SYN"},
		{"options", syn.With(pkt.IPOptions(8)).Frame(), "TCP 198.51.100.7:40000 203.0.113.10:80 SYN"},
		{"UDP", udp.Frame(), "UDP 198.51.100.7:53 203.0.113.10:53 "},
		{"IPv6", syn6.Frame(), "TCP 2001:db8::7:40000 2001:db8:113::10:80 SYN,ACK"},
		{"hop-by-hop", hop, "TCP 2001:db8::7:40000 2001:db8:113::10:80 SYN,ACK"},
		{"ping", pkt.ICMP("198.51.100.7", "203.0.113.10").Frame(), "ICMP 198.51.100.7:0 203.0.113.10:0 "},
		{"first fragment", udp.With(pkt.Fragment(0, true)).Frame(), "UDP 198.51.100.7:53 203.0.113.10:53 "},
		{"later fragment", udp.With(pkt.Fragment(100, false)).Frame(), "UDP 198.51.100.7:0 203.0.113.10:0 "},
		{"ARP", append(make([]byte, 12), 8, 6, 0, 1), " :0 :0 "},
		{"nothing", nil, " :0 :0 "},
	} {
		p, _ := observe("mux1", &weirv1.CapturedPacket{Frame: c.frame, Verdict: "forward_syn"})
		got := fmt.Sprintf("%s %s:%d %s:%d %s", p.GetProtocol(), p.GetSourceAddress(), p.GetSourcePort(), p.GetDestinationAddress(), p.GetDestinationPort(), p.GetTcpFlags())
		if got != c.want || p.GetVerdict() != "forward_syn" || p.GetMux() != "mux1" {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		for n := range c.frame { // cut anywhere, it is told as far as it goes
			observe("mux1", &weirv1.CapturedPacket{Frame: c.frame[:n]})
		}
	}
}

func FuzzReadHeaders(f *testing.F) {
	f.Add(pkt.TCP("198.51.100.7:40000", "203.0.113.10:80", pkt.SYN).Frame())
	f.Add(pkt.InsertHeader(pkt.UDP("[2001:db8::7]:1", "[2001:db8::8]:2").Frame(), protocolDestination, append([]byte{protocolUDP, 1}, make([]byte, 14)...)))
	f.Fuzz(func(t *testing.T, frame []byte) {
		p, flow := observe("mux1", &weirv1.CapturedPacket{Frame: frame})
		if p.GetSourceAddress() != "" && !netip.MustParseAddr(p.GetSourceAddress()).IsValid() || flow.mux != "mux1" {
			t.Errorf("%+v, %+v", p, flow)
		}
	})
}

// copies are n copies of a packet on its way in, each with its way out.
func copies(n int, verdict, source string) *weirv1.CaptureResponse {
	r := &weirv1.CaptureResponse{}
	for range n {
		frame := pkt.TCP(source, "203.0.113.10:80", pkt.SYN).Frame()
		r.Packets = append(r.Packets, &weirv1.CapturedPacket{Direction: wire.DirectionIn, Frame: frame, Verdict: verdict},
			&weirv1.CapturedPacket{Direction: wire.DirectionOut, Frame: frame, Verdict: verdict})
	}
	return r
}

func newObservation(t *testing.T, r *weirv1.ObserveRequest) *observation {
	t.Helper()
	o, err := (&Service{}).readObserve(r)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Each packet is told once, by the way in, and no more than were asked for; what muxes lose adds up.
func TestObservationIsBounded(t *testing.T) {
	o := newObservation(t, &weirv1.ObserveRequest{Count: 5})
	first := o.respond(observedPart{mux: "mux1", from: &weirv1.CaptureResponse{}})
	if len(first.GetMuxes()) != 1 || first.GetMuxes()[0].GetReason() != "" {
		t.Errorf("the mux took it, and is told as %v", first.GetMuxes())
	}
	part := copies(3, "forward_syn", "198.51.100.7:1")
	part.Lost = 2
	r := o.respond(observedPart{mux: "mux1", from: part})
	if len(r.GetPackets()) != 3 || len(r.GetMuxes()) != 0 || r.GetLost() != 2 {
		t.Errorf("%d packets, lost %d, muxes %v", len(r.GetPackets()), r.GetLost(), r.GetMuxes())
	}
	part = copies(9, "forward_syn", "198.51.100.7:1")
	part.Lost = 3
	r = o.respond(observedPart{mux: "mux2", from: part})
	if len(r.GetPackets()) != 2 || o.count != 0 || r.GetLost() != 5 {
		t.Errorf("%d packets of 2 that were left, lost %d", len(r.GetPackets()), r.GetLost())
	}
	r = o.respond(observedPart{mux: "mux2", ended: connect.NewError(connect.CodeAborted, fmt.Errorf("mux mux2: another capture is under way"))})
	if len(r.GetMuxes()) != 1 || r.GetMuxes()[0].GetReason() != "mux mux2: another capture is under way" {
		t.Errorf("told %v", r.GetMuxes())
	}
	for what, r := range map[string]*weirv1.ObserveRequest{
		"count": {Count: wire.MaxCaptureCount + 1}, "filter": {Filter: &weirv1.CaptureFilter{Client: "x"}},
	} {
		if _, err := (&Service{}).readObserve(r); err == nil {
			t.Errorf("a wrong %s is taken", what)
		}
	}
}

// A connection is told once at each mux, and again when it gets another verdict; so many that there is no room are told anew.
func TestConnectionsAreToldOnce(t *testing.T) {
	o := newObservation(t, &weirv1.ObserveRequest{Connections: true})
	told := func(mux, verdict, source string, n int) int {
		return len(o.respond(observedPart{mux: mux, from: copies(n, verdict, source)}).GetPackets())
	}
	var got []string
	for _, c := range []struct{ mux, verdict, source string }{
		{"mux1", "forward_syn", "198.51.100.7:1"},
		{"mux1", "forward_syn", "198.51.100.7:1"},
		{"mux1", "forward_bucket", "198.51.100.7:1"},
		{"mux1", "forward_syn", "198.51.100.7:2"},
		{"mux2", "forward_syn", "198.51.100.7:1"},
	} {
		got = append(got, fmt.Sprint(told(c.mux, c.verdict, c.source, 3)))
	}
	if want := "1 0 1 1 1"; strings.Join(got, " ") != want {
		t.Errorf("told %v, want %s", got, want)
	}
	for i := range maxSeenFlows {
		o.seen[seenFlow{mux: fmt.Sprint(i)}] = "x"
	}
	if told("mux1", "forward_syn", "198.51.100.9:1", 1); len(o.seen) > maxSeenFlows {
		t.Errorf("%d flows are remembered", len(o.seen))
	}
}
