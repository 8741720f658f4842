package agent

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/multipath"
	"github.com/weirlb/weir/internal/pkt"
)

// withRawOptions is the packet's frame with these bytes as TCP options, whatever they say.
func withRawOptions(p pkt.Packet, options []byte) []byte {
	p = p.With(pkt.NOP(len(options)))
	frame := p.Frame()
	at := p.L4() + 20
	sum := uint32(^binary.BigEndian.Uint16(frame[p.L4()+16:]))
	for i := 0; i < len(options); i += 2 {
		sum += uint32(^uint16(0x0101)) + uint32(binary.BigEndian.Uint16(options[i:]))
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(frame[p.L4()+16:], ^uint16(sum))
	copy(frame[at:], options)
	return frame
}

// announcement is ADD_ADDR of the address; flags and what stands behind it are as given.
func announcement(flags byte, address string, rest ...byte) []byte {
	option := append([]byte{30, 0, 3<<4 | flags, 5}, netip.MustParseAddr(address).AsSlice()...)
	option = append(option, rest...)
	option[1] = byte(len(option))
	return option
}

var (
	testHMAC = []byte{1, 2, 3, 4, 5, 6, 7, 8}
	testPort = []byte{0x1f, 0x90}
	stamps   = []byte{1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 8}
	lost     = []byte{1, 1, 5, 10, 0, 0, 0, 9, 0, 0, 1, 8}
	dss      = []byte{30, 8, 2 << 4, 1, 0, 0, 0, 1}
)

// refused is what is left of an announcement of an IPv4 address: no client takes it.
func refused() []byte { return announcement(0, "0.0.0.0", make([]byte, 8)...) }

// padded is options of a length that a header can have.
func padded(parts ...[]byte) []byte {
	options := slices.Concat(parts...)
	for len(options)%4 != 0 {
		options = append(options, 1)
	}
	return options
}

// announcing has a connection begin, and returns a segment of its workload.
func (w multipathWorld) announcing(r *rig, t *testing.T, options ...func(*pkt.Packet)) pkt.Packet {
	t.Helper()
	syn := pkt.TCP(w.client, w.vip, pkt.SYN, options...)
	if got := r.verdict("from_uplink", syn.Inside(outer(w.tunnel))); got != w.deliver {
		t.Fatalf("SYN: %s", got)
	}
	if got := r.verdict(w.program, replyTo(delivered(syn, w.dip), pkt.SYN|pkt.ACK, options...)); got != w.reply {
		t.Fatalf("SYN/ACK: %s", got)
	}
	return replyTo(delivered(syn, w.dip), pkt.ACK, pkt.Payload([]byte("data")))
}

func (r *rig) removedAnnouncements() uint64 {
	r.t.Helper()
	n, err := abi.Counter(r.objects.MptcpEvents, uint32(bpf.AgentMultipathEventMULTIPATH_ANNOUNCEMENT_REMOVED))
	if err != nil {
		r.t.Fatal(err)
	}
	return n.Packets
}

// TestNoAddressButTheVIPIsAnnounced has workloads announce addresses, in every form and place.
func TestNoAddressButTheVIPIsAnnounced(t *testing.T) {
	vip := func(w multipathWorld) string { return netip.MustParseAddrPort(w.vip).Addr().String() }
	cases := map[string]struct {
		options func(w multipathWorld) []byte
		removed bool
	}{
		"own":            {func(w multipathWorld) []byte { return announcement(0, w.dip, testHMAC...) }, true},
		"own with port":  {func(w multipathWorld) []byte { return announcement(0, w.dip, slices.Concat(testPort, testHMAC)...) }, true},
		"other family's": {func(multipathWorld) []byte { return announcement(0, "fd01::99", testHMAC...) }, true},
		"other":          {func(multipathWorld) []byte { return announcement(0, "192.0.2.1", testHMAC...) }, true},
		"another VIP of the workload": {func(multipathWorld) []byte {
			return announcement(0, netip.MustParseAddrPort(otherVIP4).Addr().String(), testHMAC...)
		}, true},
		"version 0":          {func(multipathWorld) []byte { return announcement(4, "192.0.2.1") }, true},
		"VIP":                {func(w multipathWorld) []byte { return announcement(0, vip(w), testHMAC...) }, false},
		"VIP with port":      {func(w multipathWorld) []byte { return announcement(0, vip(w), slices.Concat(testPort, testHMAC)...) }, false},
		"echo of a client's": {func(w multipathWorld) []byte { return announcement(1, w.dip) }, false},
		"behind DSS": {func(multipathWorld) []byte {
			return append(slices.Clone(dss), announcement(0, "192.0.2.1", testHMAC...)...)
		}, true},
		"behind what is lost": {func(multipathWorld) []byte {
			return append(slices.Clone(lost), announcement(0, "192.0.2.1", testHMAC...)...)
		}, true},
		"two": {func(multipathWorld) []byte {
			return append(announcement(4, "192.0.2.1"), announcement(0, "192.0.2.2", testHMAC...)...)
		}, true},
		"VIP, and another": {func(w multipathWorld) []byte { return append(announcement(0, "192.0.2.1"), announcement(0, vip(w))...) }, true},
		"cut off":          {func(multipathWorld) []byte { return announcement(0, "192.0.2.1", testHMAC...)[:12] }, false},
		"behind the end":   {func(multipathWorld) []byte { return append([]byte{0}, announcement(0, "192.0.2.1", testHMAC...)...) }, false},
		"plain":            {func(multipathWorld) []byte { return lost }, false},
	}
	for name, w := range multipathWorlds {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			segment := w.announcing(r, t)
			for what, c := range cases {
				for _, before := range [][]byte{nil, stamps} {
					options := padded(before, c.options(w))
					if len(options) > 40 {
						continue
					}
					counted := r.removedAnnouncements()
					want := multipath.RemoveAnnouncements(options, netip.MustParseAddrPort(w.vip).Addr())
					if bytes.Equal(want, options) == c.removed {
						t.Errorf("%s: the model says %x of %x", what, want, options)
					}
					got := r.run(w.program, withRawOptions(segment, options), nil)
					if frame := withRawOptions(segment.With(from(w.vip)), want); got.verdict != w.reply || !bytes.Equal(got.frame, frame) {
						t.Errorf("%s: %s\n%x, not\n%x", what, got.verdict, got.frame, frame)
					}
					if removed := r.removedAnnouncements() > counted; removed != c.removed {
						t.Errorf("%s: counted: %t", what, removed)
					}
				}
			}
		})
	}
}

// TestAnnouncementsInLargeBuffers has several segments in one buffer, with the options of one.
func TestAnnouncementsInLargeBuffers(t *testing.T) {
	for name, w := range multipathWorlds {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			options := padded(announcement(0, "192.0.2.1", testHMAC...))
			large := w.announcing(r, t).With(pkt.Payload(make([]byte, 2800)))
			got := r.run(w.program, withRawOptions(large, options), gso(2, 1400))
			if want := withRawOptions(large.With(from(w.vip)), refused()); !bytes.Equal(got.frame, want) {
				t.Errorf("%s\n%x, not\n%x", got.verdict, got.frame[:90], want[:90])
			}
		})
	}
}

// TestAnnouncementsBesideCookies has a segment get its cookie, and lose its announcement.
func TestAnnouncementsBesideCookies(t *testing.T) {
	for name, w := range multipathWorlds {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			segment := w.announcing(r, t, pkt.NOP(2), pkt.Timestamps(2, 0))
			announced := padded(stamps, announcement(0, "192.0.2.1", testHMAC...))
			without := padded(stamps, refused())
			want := r.run(w.program, withRawOptions(segment, without), nil)
			got := r.run(w.program, withRawOptions(segment, announced), nil)
			if got.verdict != w.reply || !bytes.Equal(got.frame, want.frame) {
				t.Errorf("%s: %x, not %x", got.verdict, got.frame, want.frame)
			}
			if at := segment.L4() + 24; binary.BigEndian.Uint32(got.frame[at:])%(1<<13) != backendSlot {
				t.Errorf("no cookie in %x", got.frame[at:])
			}
		})
	}
}

// TestAnnouncementsOfClientsStay has what clients announce reach workloads.
func TestAnnouncementsOfClientsStay(t *testing.T) {
	r := newRig(t)
	p := pkt.TCP(client4, vip4, pkt.ACK)
	options := announcement(0, "192.0.2.1", testHMAC...)
	in := withRawOptions(p.Inside(outer(native4)), options)
	got := r.run("from_uplink", in, nil)
	if want := withRawOptions(delivered(p.Inside(outer(native4)), native4), options); got.verdict != "deliver_native" || !bytes.Equal(got.frame, want) {
		t.Errorf("%s: %x, not %x", got.verdict, got.frame, want)
	}
}

// drawOptions draws options that are whole, damaged, or neither.
func drawOptions(draw *rapid.T, addresses []string) []byte {
	var options []byte
	for len(options) < 40 && rapid.IntRange(0, 5).Draw(draw, "more") > 0 {
		address := rapid.SampledFrom(addresses).Draw(draw, "address")
		tail := rapid.SampledFrom([][]byte{nil, testPort, testHMAC, slices.Concat(testPort, testHMAC), {1}, {1, 2, 3}}).Draw(draw, "tail")
		flags := rapid.ByteRange(0, 15).Draw(draw, "flags")
		part := rapid.SampledFrom([][]byte{
			announcement(flags, address, tail...), announcement(flags, address, testHMAC...), announcement(0, address), announcement(0, "192.0.2.2"),
			announcement(0, "192.0.2.2", testHMAC...),
			{1},
			{0},
			{1, 1},
			stamps, stamps, lost, dss, dss,
			{30, 4, 3 << 4, 1},
			{30, 3, 3 << 4},
			{30, 2},
			{30, 1},
			{30, 0},
			{30},
			{254, 4, 1, 2},
			{5, 0},
		}).Draw(draw, "part")
		part = slices.Clone(part)
		if rapid.IntRange(0, 7).Draw(draw, "damage") == 0 {
			part[rapid.IntRange(0, len(part)-1).Draw(draw, "at")] = rapid.Byte().Draw(draw, "byte")
		}
		options = append(options, part...)
	}
	if len(options) > 40 {
		options = options[:40]
	}
	for len(options)%4 != 0 {
		options = append(options, rapid.SampledFrom([]byte{0, 1, 30}).Draw(draw, "last"))
	}
	return options
}

// TestAnnouncementsAsTheModel compares the program with internal/multipath, for options of any kind.
func TestAnnouncementsAsTheModel(t *testing.T) {
	for name, w := range multipathWorlds {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			segment := w.announcing(r, t)
			vip := netip.MustParseAddrPort(w.vip).Addr()
			changed := 0
			rapid.Check(t, func(draw *rapid.T) {
				options := drawOptions(draw, []string{w.dip, vip.String(), "192.0.2.1", "fd01::99"})
				want := multipath.RemoveAnnouncements(options, vip)
				if !bytes.Equal(want, options) {
					changed++
				}
				got := r.run(w.program, withRawOptions(segment, options), nil)
				if frame := withRawOptions(segment.With(from(w.vip)), want); got.verdict != w.reply || !bytes.Equal(got.frame, frame) {
					draw.Fatalf("%s: of %x\n%x, not\n%x", got.verdict, options, got.frame, frame)
				}
			})
			if changed == 0 {
				t.Error("none was changed: this says nothing")
			}
		})
	}
}
