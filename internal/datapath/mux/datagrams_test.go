package mux

import (
	"testing"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// datagramSizes let nothing expire: a busy machine may take its time.
func datagramSizes() bpf.Sizes {
	sizes := testSizes
	sizes.FragmentLife = 1 << 60
	return sizes
}

// pieces gives the fragments at the offset of so many datagrams to the program, and counts the verdicts.
func (w tenantWorld) pieces(t *testing.T, d *Datapath, vip string, seed uint32, datagrams int, offset uint16) map[string]uint64 {
	t.Helper()
	before := verdicts(t, d)
	for i := range datagrams {
		run(t, d, pkt.UDP(w.from(seed, i), vip, pkt.Fragment(offset, offset == 0)).Frame())
	}
	return difference(before, verdicts(t, d))
}

// datagramWorld is that of UDP, each VIP a tenant's.
func datagramWorld(t *testing.T, w tenantWorld) *Datapath {
	t.Helper()
	endpoints := w.endpoints()
	for i := range endpoints {
		endpoints[i].Key.Protocol = model.UDP
	}
	d := newFilledOf(t, datagramSizes(), endpoints...)
	sweepFlows(t, d)
	return d
}

// TestDatagramsAreSharedByTenants floods the VIPs of one tenant with first fragments, many more than there is room for,
// while another tenant's datagrams are on their way: all of these are put through.
func TestDatagramsAreSharedByTenants(t *testing.T) {
	for name, w := range tenantWorlds() {
		t.Run(name, func(t *testing.T) {
			d := datagramWorld(t, w)
			flood := func(seed uint32) {
				for i, vip := range w.many {
					w.pieces(t, d, vip, seed+uint32(i)<<20, 40_000, 0)
				}
			}
			const others = 2000
			flood(0x0b000000)
			wantLost(t, d, true, false)
			w.pieces(t, d, w.one, 0x66000000, others, 0)
			wantLost(t, d, true, true)
			flood(0x4d000000)
			if got := w.pieces(t, d, w.one, 0x66000000, others, 9); got["forward_fragment"] != others {
				t.Errorf("of %d datagrams beside a flood: %v", others, got)
			}
		})
	}
}

// wantLost says to whose datagrams others have been lost.
func wantLost(t *testing.T, d *Datapath, own, another bool) {
	t.Helper()
	lost, err := d.LostDatagrams()
	if err != nil || (lost["same_tenant"] != 0) != own || (lost["another_tenant"] != 0) != another {
		t.Errorf("lost datagrams: %v (%v)", lost, err)
	}
}

// TestDatagramsOfOneTenantFillTheTable: what nobody else wants is one's own, and an ordinary lot is remembered whole.
func TestDatagramsOfOneTenantFillTheTable(t *testing.T) {
	for name, w := range tenantWorlds() {
		t.Run(name, func(t *testing.T) {
			d := datagramWorld(t, w)
			const ordinary = 8192
			w.pieces(t, d, w.one, 0x66000000, ordinary, 0)
			if got := w.pieces(t, d, w.one, 0x66000000, ordinary, 9); got["forward_fragment"] != ordinary {
				t.Errorf("of %d datagrams, nobody else's beside them: %v", ordinary, got)
			}
			w.pieces(t, d, w.one, 0x4d000000, 150_000, 0)
			if live, room := datagramsOf(t, d), int(d.tables.Fragments.MaxEntries())*len(bpf.MuxDatagramSet{}.Cells); live < room*99/100 {
				t.Errorf("who is alone has %d cells of %d", live, room)
			}
		})
	}
}

// datagramsOf counts cells that are not free.
func datagramsOf(t *testing.T, d *Datapath) (live int) {
	t.Helper()
	var row uint32
	var set bpf.MuxDatagramSet
	for rows := d.tables.Fragments.Iterate(); rows.Next(&row, &set); {
		for _, cell := range set.Cells {
			if cell.Owner != 0 {
				live++
			}
		}
	}
	return live
}

// TestFragmentKnown: user space sees what packets have told, and does not see what nobody told.
func TestFragmentKnown(t *testing.T) {
	d := newFilled(t, world()...)
	for _, p := range []pkt.Packet{pkt.UDP(client4, vip4, pkt.Fragment(0, true)), pkt.UDP(client6, vip6, pkt.Fragment(0, true))} {
		key := FragmentKey{Source: p.IP.Source, Destination: p.IP.Destination, Protocol: uint8(p.Protocol), ID: uint32(p.IP.ID)}
		if d.FragmentKnown(key) {
			t.Errorf("%v is known before it came", key)
		}
		run(t, d, p.Frame())
		if !d.FragmentKnown(key) {
			t.Errorf("%v is not known", key)
		}
		key.ID++
		if d.FragmentKnown(key) {
			t.Errorf("%v is known", key)
		}
	}
}

// TestDatagramsAreForgotten waits until a fragment is of a datagram that nobody has told of for as long as one lives.
func TestDatagramsAreForgotten(t *testing.T) {
	sizes := testSizes
	sizes.FragmentLife = 20 * bpf.DatagramTick
	d := newFilledOf(t, sizes, world()...)
	for client, vip := range map[string]string{client4: vip4, client6: vip6} {
		run(t, d, pkt.UDP(client, vip, pkt.Fragment(0, true)).Frame())
		until(t, "the datagram to "+vip+" is forgotten", func() bool {
			action, _ := run(t, d, pkt.UDP(client, vip, pkt.Fragment(9, false)).Frame())
			return action != xdpTX
		})
	}
}
