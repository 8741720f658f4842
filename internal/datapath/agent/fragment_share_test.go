package agent

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// fragmentWorlds are two VIPs of one tenant and one of another, with clients, and their backend.
var fragmentWorlds = map[string]struct {
	many    [2]string
	one     string
	clients [3]string
	dip     string
}{
	"v4": {[2]string{vip4, otherVIP4}, "203.0.113.20:80", [3]string{client4, "198.51.100.8:40000", "198.51.100.9:40000"}, native4},
	"v6": {[2]string{vip6, "[2001:db8:1::11]:80"}, "[2001:db8:1::20]:80", [3]string{client6, "[2001:db8::8]:40000", "[2001:db8::9]:40000"}, native6},
}

// fragmentRig has the rules of the VIPs, and forgets nothing by time: a busy machine may take its own.
func fragmentRig(t *testing.T, many [2]string, one string) *rig {
	t.Helper()
	r := newRig(t, func(spec *ebpf.CollectionSpec) {
		var key flowhash.Key
		for i := range key {
			key[i] = byte(i*37 + 11)
		}
		err := errors.Join(spec.Variables[bpf.AgentVarCfgDatagramLife].Set(uint32(1<<30)), spec.Variables[bpf.AgentVarHashKey].Set(key[:]))
		if err != nil {
			t.Fatal(err)
		}
	})
	var all []model.HostBackend
	for _, vip := range append(many[:], one) {
		b := rule(model.UDP, vip, native4, native4, native6)
		b.Tenant = "many"
		if vip == one {
			b.Tenant = "one"
		}
		all = append(all, b)
	}
	if err := r.Replace(all); err != nil {
		t.Fatal(err)
	}
	return r
}

// answersTo is what the workload answers in a session that it opens.
func (r *rig) answersTo(client, vip, dip string) pkt.Packet {
	r.t.Helper()
	in := pkt.UDP(client, vip)
	r.quick("from_uplink", in.Inside(outer(native4)).Frame())
	return replyTo(delivered(in, dip), 0)
}

func pieceOf(answer pkt.Packet, id, offset uint16) pkt.Packet {
	return piece(answer, offset, offset == 0).With(func(p *pkt.Packet) { p.IP.ID = id })
}

// sendFirsts sends the first fragments of so many datagrams, each of another id.
func (r *rig) sendFirsts(answer pkt.Packet, datagrams int) {
	r.t.Helper()
	for id := range datagrams {
		r.quick("to_uplink", pieceOf(answer, uint16(id), 0).Frame())
	}
}

// TestReplyFragmentsAreSharedByTenants has the workload answer clients of one tenant's VIPs by first fragments, many
// more than there is room for, while its answers to another tenant's client are on their way: these all leave as the
// VIP.
func TestReplyFragmentsAreSharedByTenants(t *testing.T) {
	for name, w := range fragmentWorlds {
		t.Run(name, func(t *testing.T) {
			r := fragmentRig(t, w.many, w.one)
			flood := func(client string) {
				for _, vip := range w.many {
					r.sendFirsts(r.answersTo(client, vip, w.dip), 60_000)
				}
			}
			flood(w.clients[1])
			const others = 1000
			answer := r.answersTo(w.clients[0], w.one, w.dip)
			r.sendFirsts(answer, others)
			flood(w.clients[2])
			wrong := 0
			for id := range uint16(others) {
				left, err := pkt.Decode(r.quick("to_uplink", pieceOf(answer, id, 5).Frame()))
				if err != nil {
					t.Fatal(err)
				}
				if left.IP.Source != netip.MustParseAddrPort(w.one).Addr() {
					wrong++
				}
			}
			if wrong > 0 {
				t.Errorf("of %d datagrams beside a flood, %d did not leave as the VIP", others, wrong)
			}
		})
	}
}

// TestReplyFragmentsOfOneTenantFillTheTable: what nobody else wants is one's own.
func TestReplyFragmentsOfOneTenantFillTheTable(t *testing.T) {
	for name, w := range fragmentWorlds {
		t.Run(name, func(t *testing.T) {
			r := fragmentRig(t, w.many, w.one)
			for _, client := range w.clients {
				r.sendFirsts(r.answersTo(client, w.one, w.dip), 60_000)
			}
			live, room := 0, 0
			var row uint32
			var set bpf.AgentDatagramSet
			for rows := r.objects.ReplyFragments.Iterate(); rows.Next(&row, &set); {
				for _, cell := range set.Cells {
					room++
					if cell.Owner != 0 {
						live++
					}
				}
			}
			if lost, err := r.LostDatagrams(); err != nil || lost["same_tenant"] == 0 || lost["another_tenant"] != 0 {
				t.Errorf("lost datagrams of who is alone: %v (%v)", lost, err)
			}
			if live < room*99/100 {
				t.Errorf("who is alone has %d cells of %d", live, room)
			}
		})
	}
}
