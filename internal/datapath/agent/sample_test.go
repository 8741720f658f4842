package agent

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/agent/sample"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// Samples stand for the bytes of what is delivered: each packet counts at the host that delivers it, and nowhere else.
func TestSamples(t *testing.T) {
	r := newRig(t)
	t.Cleanup(func() { r.CloseSamples() }) // it ends the test
	bytes := map[string]uint64{}
	read := func() {
		t.Helper()
		clear(bytes)
		err := r.EachSample(func(p sample.Packet) { bytes[p.Client.String()+" to "+p.VIP.String()] += p.Bytes })
		if err != nil {
			t.Fatal(err)
		}
	}
	read() // what others left
	run := func(n int, frame []byte) {
		t.Helper()
		for range n {
			if _, err := r.objects.FromUplink.Run(&ebpf.RunOptions{Data: toUs(frame), DataOut: make([]byte, len(frame)+256)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	e := heldEndpoint(model.UDP, vip6, native6)
	e.Buckets = slices.Repeat([]model.Slot{farSlot4}, 256)
	r.steer(held(e))
	packet, steered := pkt.UDP(client4, vip4), pkt.UDP(client6, vip6)
	const n = 20000
	run(n, packet.Inside(outer(native4)).Frame())
	run(n/4, fromSwitch(steered, native6, false))
	read()
	want := float64(n * (len(packet.Frame()) - 14))
	key := netip.MustParseAddrPort(client4).Addr().String() + " to " + netip.MustParseAddrPort(vip4).Addr().String()
	// 78 samples are expected, and their number varies by 5 of them: gaps are uniform.
	if got := float64(bytes[key]); got < want/1.6 || got > want*1.6 {
		t.Errorf("of %.0f bytes %.0f are estimated", want, got)
	}
	delete(bytes, key)
	if len(bytes) > 0 {
		t.Errorf("samples were taken of %v", bytes)
	}
}
