package agent

import (
	"errors"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// rulesOfTwo are of two VIPs of the family, and one workload.
func (r *rig) rulesOfTwo(vip, other string) {
	r.t.Helper()
	err := r.Replace([]model.HostBackend{rule(model.TCP, vip, native4, native4, native6), rule(model.TCP, other, native4, native4, native6)})
	if err != nil {
		r.t.Fatal(err)
	}
}

// replied is a connection through the VIP that its workload has answered: a client's packet, the workload's, and both
// of their session.
type replied struct {
	in, reply pkt.Packet
	key       bpf.AgentSessionKey
	row       bpf.AgentSession
}

func (r *rig) answer(client, vip, dip string) replied {
	r.t.Helper()
	a := replied{in: pkt.TCP(client, vip, pkt.ACK)}
	a.reply = replyTo(delivered(a.in, dip), pkt.ACK|pkt.PSH)
	before := r.newSessions()
	r.quick("from_uplink", a.in.Inside(outer(native4)).Frame())
	r.quick("to_uplink", a.reply.Frame())
	for key, row := range r.newSessions() {
		if _, old := before[key]; !old {
			a.key, a.row = key, row
		}
	}
	return a
}

func (r *rig) newSessions() map[bpf.AgentSessionKey]bpf.AgentSession {
	r.t.Helper()
	rows, err := abi.ReadTable[bpf.AgentSessionKey, bpf.AgentSession](r.objects.NewSessions)
	if err != nil {
		r.t.Fatal(err)
	}
	return rows
}

// TestRowsOfOthersAreRefused has a connection's row hold what is another's, as it does when the kernel gives the row
// away while a program is at it. Nothing leaves as the other's VIP, and the client's next packet mends it.
func TestRowsOfOthersAreRefused(t *testing.T) {
	for name, f := range families {
		for _, table := range []string{"new_sessions", "sessions"} {
			t.Run(name+" "+table, func(t *testing.T) {
				r := newRig(t)
				r.rulesOfTwo(f.greedy, f.other)
				address := netip.MustParseAddr(f.client)
				ours := r.answer(netip.AddrPortFrom(address, 2000).String(), f.greedy, f.dip)
				other := r.answer(netip.AddrPortFrom(address, 2001).String(), f.other, f.dip)
				rows := r.objects.NewSessions
				if table == "sessions" {
					rows = r.objects.Sessions
				}
				if err := rows.Put(ours.key, other.row); err != nil {
					t.Fatal(err)
				}
				answer, workload := ours.reply.With(from(f.greedy)), delivered(ours.in, f.dip)
				r.check("the workload's packet", outbound("to_uplink", ours.reply, "drop_session_gone", nil))
				about := step{program: "to_uplink", in: errorFrom(f.dip, address.String(), workload), verdict: "drop_session_gone"}
				r.check("its error", about)
				r.check("the client's packet", inbound(ours.in.Inside(outer(native4)), "deliver_native", &workload))
				r.check("the workload's next", outbound("to_uplink", ours.reply, "reply_native", &answer))
			})
		}
	}
}

// errorFrom is a workload's error about what was delivered to it.
func errorFrom(workload, client string, about pkt.Packet) []byte {
	kind := uint8(unreachable4)
	if netip.MustParseAddr(workload).Is6() {
		kind = unreachable6
	}
	return asFrame(message(workload, client, kind, quote(about, 60)))
}

// TestRepliesWhileRowsChangeHands writes the sessions of two connections anew, over and over, while the workload
// answers in the first one: each time the kernel gives the row of one to the other. What leaves is never as from the
// VIP of the other.
func TestRepliesWhileRowsChangeHands(t *testing.T) {
	const rounds, batch = 200_000, 1024
	for name, f := range families {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.rulesOfTwo(f.greedy, f.other)
			address := netip.MustParseAddr(f.client)
			ours := r.answer(netip.AddrPortFrom(address, 2000).String(), f.greedy, f.dip)
			other := r.answer(netip.AddrPortFrom(address, 2001).String(), f.other, f.dip)
			var keys []bpf.AgentSessionKey
			var rows []bpf.AgentSession
			for range batch {
				keys, rows = append(keys, ours.key, other.key), append(rows, ours.row, other.row)
			}
			stop, failed := make(chan struct{}), make(chan error, 1)
			go func() {
				var err error
				for err == nil {
					select {
					case <-stop:
						failed <- nil
						return
					default:
						_, err = r.objects.NewSessions.BatchUpdate(keys, rows, nil)
					}
				}
				failed <- err
			}()
			defer func() {
				close(stop)
				if err := <-failed; err != nil {
					t.Error(err)
				}
			}()
			wrong, frame := netip.MustParseAddrPort(f.other).Addr(), ours.reply.Frame()
			for i := range rounds {
				if sourceOf(r.quick("to_uplink", frame)) == wrong {
					t.Fatalf("answer %d leaves as from the VIP of another connection, %s", i, f.other)
				}
			}
		})
	}
}

// sourceOf is the address that a frame of IP comes from.
func sourceOf(frame []byte) netip.Addr {
	packet := frame[ethernetHeader:]
	if packet[0]>>4 == 4 {
		return netip.AddrFrom4([4]byte(packet[12:16]))
	}
	return netip.AddrFrom16([16]byte(packet[8:24]))
}

// TestRepliesWhileSessionsMove has a session move from the new ones to the confirmed ones, over and over, while the
// workload answers in it: always as from the VIP.
func TestRepliesWhileSessionsMove(t *testing.T) {
	const rounds = 200_000
	for name, f := range families {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.rulesOfTwo(f.greedy, f.other)
			address := netip.MustParseAddr(f.client)
			ours := r.answer(netip.AddrPortFrom(address, 2000).String(), f.greedy, f.dip)
			var answers atomic.Int64
			defer answers.Store(rounds) // whatever ends the test ends the moves
			moved := make(chan error, 1)
			go func() {
				from, to := r.objects.NewSessions, r.objects.Sessions
				var err error
				for err == nil && answers.Load() < rounds {
					err = errors.Join(to.Put(ours.key, ours.row), from.Delete(ours.key))
					from, to = to, from
					// None of them meets more than one move.
					for begun := answers.Load(); answers.Load() < min(begun+2, rounds); {
						runtime.Gosched()
					}
				}
				moved <- err
			}()
			vip, frame := netip.MustParseAddrPort(f.greedy).Addr(), ours.reply.Frame()
			for i := range rounds {
				if got := sourceOf(r.quick("to_uplink", frame)); got != vip {
					t.Errorf("answer %d leaves as from %v", i, got)
				}
				answers.Add(1)
			}
			if err := <-moved; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTheRingSparesWhatBeganAnew has a session that was made beyond its quota end, and its connection begin anew within
// the quota: when its place of old is given to another, it stays.
func TestTheRingSparesWhatBeganAnew(t *testing.T) {
	for name, f := range families {
		t.Run(name, func(t *testing.T) {
			r := quotaRig(t)
			r.rulesOfTwo(f.greedy, f.other)
			client := netip.MustParseAddr(f.client)
			syn := func(port uint16) pkt.Packet {
				return pkt.TCP(netip.AddrPortFrom(client, port).String(), f.greedy, pkt.SYN)
			}
			send := func(port uint16) { r.quick("from_uplink", syn(port).Inside(outer(native4)).Frame()) }
			quota := func(own uint64) {
				vip := bpf.ToAddress(netip.MustParseAddrPort(f.greedy).Addr())
				row := bpf.AgentSessionQuota{Guaranteed: [2]uint64{own, own}, Limit: [2]uint64{own, own}}
				if err := r.objects.SessionQuotas.Put(vip, row); err != nil {
					t.Fatal(err)
				}
			}
			const port = 2000
			quota(0)
			send(port)
			key := onlyKey(t, r.newSessions())
			if err := r.objects.NewSessions.Delete(key); err != nil {
				t.Fatal(err)
			}
			quota(1)
			send(port)
			for i := range uint16(r.OverflowRoom()) {
				send(port + 1 + i)
			}
			rows := r.newSessions()
			if _, there := rows[key]; !there {
				t.Error("a session within its VIP's quota made way for one beyond it")
			}
			// And what is beyond makes way: the oldest of them.
			if got, want := len(rows), r.OverflowRoom()+1; got != want {
				t.Errorf("%d sessions, not %d", got, want)
			}
			send(port + 1 + uint16(r.OverflowRoom()))
			if got := len(r.newSessions()); got != len(rows) {
				t.Errorf("one more made %d sessions of %d", got, len(rows))
			}
		})
	}
}

func onlyKey(t *testing.T, rows map[bpf.AgentSessionKey]bpf.AgentSession) (key bpf.AgentSessionKey) {
	t.Helper()
	if len(rows) != 1 {
		t.Fatalf("%d sessions, not one", len(rows))
	}
	for only := range rows {
		key = only
	}
	return key
}
