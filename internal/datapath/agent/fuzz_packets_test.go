package agent

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// How many packets of each class TestHostilePackets sends: `go test -run TestHostilePackets ./internal/datapath/agent
// -packets 1000000`.
var packets = flag.Int("packets", 20000, "random and mutated packets of each hostile class")

// hostile sends what somebody may send who is not to be believed.
type hostile struct {
	r       *rig
	ns      *netns.NS
	random  *rand.Rand
	seeds   [][]byte // valid frames, to be changed
	program string
	context []byte
}

// frame is a seed, cut, longer, tagged or with some bytes changed, or random bytes behind an Ethernet header.
func (h *hostile) frame() []byte {
	frame := slices.Clone(h.seeds[h.random.IntN(len(h.seeds))])
	if h.random.IntN(16) == 0 {
		frame = frame[:ethernetHeader]
		for range 20 + h.random.IntN(100) {
			frame = append(frame, byte(h.random.Uint32()))
		}
	}
	for range h.random.IntN(5) {
		at := 12 + h.random.IntN(len(frame)-12)
		switch h.random.IntN(4) {
		case 0:
			frame[at] ^= 1 << h.random.IntN(8)
		case 1:
			frame[at] = byte(h.random.Uint32())
		case 2:
			frame[at] = []byte{0, 1, 4, 6, 17, 41, 44, 0x45, 0x60, 0xff}[h.random.IntN(10)]
		case 3:
			other := h.seeds[h.random.IntN(len(h.seeds))]
			if at < len(other) {
				copy(frame[at:], other[at:min(len(other), at+1+h.random.IntN(20))])
			}
		}
	}
	if h.random.IntN(20) == 0 {
		frame = frame[:max(ethernetHeader+20, h.random.IntN(len(frame)))]
	}
	if h.random.IntN(8) == 0 {
		tags := []uint32{priority8021q, priority8021ad, urgent, vlan5}
		for range 1 + h.random.IntN(3) {
			frame = tagged(frame, tags[h.random.IntN(len(tags))])
		}
	}
	if source, ok := ipSource(frame); ok && h.program == "from_uplink" && isBelieved(source) {
		return h.frame()
	}
	return frame
}

// run sends n frames, each of which judge looks at with what became of it. It returns how many met which verdict. The
// tables keep the rows that they had, but for those that may grow.
func (h *hostile) run(n int, judge func(frame, out []byte, action uint32), bounds map[string]int) map[string]uint64 {
	h.r.t.Helper()
	rows, verdicts := h.r.rowCounts(), h.r.verdicts()
	out := make([]byte, 4096)
	err := h.ns.Do(func() error {
		for range n {
			frame := h.frame()
			options := &ebpf.RunOptions{Data: toUs(frame), DataOut: out, Context: h.context}
			action, err := h.r.program(h.program).Run(options)
			if errors.Is(err, syscall.EINVAL) {
				continue // the kernel's test run takes no such frame
			} else if err != nil {
				return err
			}
			judge(frame, options.DataOut, action)
			if h.r.t.Failed() {
				return fmt.Errorf("frame was %x", frame)
			}
		}
		return nil
	})
	if err != nil {
		h.r.t.Fatal(err)
	}
	for name, now := range h.r.rowCounts() {
		if now > rows[name]+bounds[name] {
			h.r.t.Errorf("table %s had %d rows, and has %d", name, rows[name], now)
		}
	}
	met := make(map[string]uint64)
	for name, now := range h.r.verdicts() {
		if now.Packets > verdicts[name].Packets {
			met[name] = now.Packets - verdicts[name].Packets
		}
	}
	h.r.t.Logf("verdicts: %v", met)
	return met
}

// TestHostilePackets has hosts and strangers that are nobody's peer send to tunnels, and workloads send by their
// interface: nothing of the former is delivered, and nothing of the latter leaves from an address that is not theirs.
func TestHostilePackets(t *testing.T) {
	t.Run("no peer", func(t *testing.T) { fromNoPeer(t) })
	t.Run("workload", func(t *testing.T) { fromAWorkload(t, "from_workload", nil) })
	t.Run("workload at the uplink", func(t *testing.T) { fromAWorkload(t, "to_uplink", cameFrom(1)) })
}

func fromNoPeer(t *testing.T) {
	r, ns := sourceRig(t)
	r.listed(filtering(model.FilterNone))
	h := &hostile{r: r, ns: ns, random: rand.New(rand.NewPCG(1, 2)), program: "from_uplink"}
	ways := carriers(t)
	for _, w := range admissionWorlds {
		contents := w.fill(r)
		for i, tunnel := range []string{native4, native6} {
			w.leave(r, tunnel, senders["Fastpath peer"][i])
			for _, in := range contents {
				for _, by := range ways {
					h.seeds = append(h.seeds, in.frameBy(by, senders["nobody"][i], tunnel, peer4))
				}
			}
		}
	}
	met := h.run(*packets, func(_, _ []byte, action uint32) {
		if action == tcxRedirect {
			t.Error("a packet of an outsider goes on")
		}
	}, nil)
	for verdict, n := range met {
		if !strings.HasPrefix(verdict, "drop_") && !strings.HasPrefix(verdict, "pass_") && verdict != "punt_control" {
			t.Errorf("%d packets of strangers are %s", n, verdict)
		}
	}
}

// isBelieved says whether an outer source is one that hosts take packets from: what bytes at random make of an
// outsider's may be.
func isBelieved(a netip.Addr) bool {
	for who, addresses := range senders {
		if who != "nobody" && slices.Contains(addresses[:], a.String()) {
			return true
		}
	}
	return netip.MustParsePrefix("10.2.0.0/24").Contains(a) || netip.MustParsePrefix("fd02::/64").Contains(a)
}

// ipSource is the source of the IP packet behind a frame's tags.
func ipSource(frame []byte) (netip.Addr, bool) {
	at := 12
	for at+4 <= len(frame) && (binary.BigEndian.Uint16(frame[at:]) == 0x8100 || binary.BigEndian.Uint16(frame[at:]) == 0x88a8) {
		at += 4
	}
	if at+2 > len(frame) {
		return netip.Addr{}, false
	}
	switch ip := frame[at+2:]; {
	case binary.BigEndian.Uint16(frame[at:]) == 0x0800 && len(ip) >= 20:
		return netip.AddrFrom4([4]byte(ip[12:16])), true
	case binary.BigEndian.Uint16(frame[at:]) == 0x86dd && len(ip) >= 40:
		return netip.AddrFrom16([16]byte(ip[8:24])), true
	}
	return netip.Addr{}, false
}

// itsOwn are what lives behind the interface of index 1, by the tables and by the routes of sourceRig.
func itsOwn(a netip.Addr) bool {
	return a == netip.MustParseAddr(guest4) || a == netip.MustParseAddr(guest6) ||
		netip.MustParsePrefix("10.1.9.0/24").Contains(a) || netip.MustParsePrefix("fd01:9::/64").Contains(a)
}

func ofTheLink(a netip.Addr) bool { return !a.IsValid() || a.IsUnspecified() || a.IsLinkLocalUnicast() }

func fromAWorkload(t *testing.T, program string, context []byte) {
	r, ns := sourceRig(t)
	if err := r.objects.WorkloadLinks.Put(uint32(1), uint8(1)); err != nil {
		t.Fatal(err)
	}
	if err := r.objects.HashKey.Set(bpf.AgentFlowhashKey{Words: [10]uint32{4711, 815}}); err != nil {
		t.Fatal(err)
	}
	const flows = 1 << 10                                                                                 // that a workload may have
	if err := r.changeSettings(func(s *bpf.AgentAgentSettings) { s.SnatFlows = flows / 2 }); err != nil { // there are two: of v4 and v6
		t.Fatal(err)
	}
	h := &hostile{r: r, ns: ns, random: rand.New(rand.NewPCG(3, 4)), program: program, context: context}
	h.seeds = workloadSeeds()
	vips := []netip.Addr{netip.MustParseAddr(crawler4), netip.MustParseAddr(crawler6)}
	h.run(*packets, func(frame, out []byte, action uint32) {
		if action == tcxDrop {
			return
		}
		was, ip := ipSource(frame)
		is, _ := ipSource(out)
		switch {
		case !ip: // ARP, or cut shorter than an IP header: the stack's
		case program == "from_workload" && ofTheLink(was) && was == is: // up the stack, and no further
		case program == "to_uplink" && was == netip.MustParseAddr(native4), program == "to_uplink" && was == netip.MustParseAddr(native6):
			// the host's own, which netfilter may have made of it
		case !itsOwn(was):
			t.Errorf("what is from %s passes", was)
		case was != is && !slices.Contains(vips, is):
			t.Errorf("what is from %s leaves as %s", was, is)
		}
	}, map[string]int{"snat_flows": flows, "snat_ports": flows, "snat_block_use": flows})
}

// workloadSeeds are packets of all forms from its own and from others' addresses.
func workloadSeeds() (seeds [][]byte) {
	for own, c := range map[string]struct {
		remote, tunnel string
		forged         []string
	}{
		own(guest4, 5000): {remote4, mux4, []string{crawler4, vip4[:len(vip4)-3], native4, interface4, mux4, "192.0.2.55", "0.0.0.0", "169.254.1.1", behind4}},
		own(guest6, 5000): {remote6, mux6, []string{crawler6, "2001:db8:1::10", native6, interface6, mux6, "2001:db8:55::1", "::", "fe80::1", behind6}},
	} {
		sources := []string{own}
		for _, f := range c.forged {
			sources = append(sources, netip.AddrPortFrom(netip.MustParseAddr(f), 53).String())
		}
		for _, source := range sources {
			udp := pkt.UDP(source, c.remote)
			from, to := udp.IP.Source.String(), udp.IP.Destination.String()
			request := uint8(echo4)
			if udp.IP.Source.Is6() {
				request = echo6
			}
			seeds = append(seeds, udp.Frame(), pkt.TCP(source, c.remote, pkt.SYN).Frame(), pkt.TCP(source, c.remote, pkt.ACK).Frame(),
				piece(udp, 0, true).Frame(), piece(udp, 5, false).Frame(), asFrame(echo(from, to, request, 7)),
				asFrame(message(from, to, 3, quote(udp, 48))),
				udp.Inside(pkt.IP{Source: udp.IP.Source, Destination: netip.MustParseAddr(c.tunnel), TTL: 64}).Frame(),
				inGUE(udp, pkt.IP{Source: udp.IP.Source, Destination: netip.MustParseAddr(c.tunnel), TTL: 64}, step1(stepFinal, peer4)).Frame())
		}
	}
	slices.SortFunc(seeds, slices.Compare)
	return seeds
}
