package overlay

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/pkt"
)

func (r *rig) now() (now uint32) {
	for s := range r.All() {
		now = max(now, s.Seen)
	}
	return now
}

// clean ends what is to end at a tick, and returns the resets.
func (r *rig) clean(now uint32, most int, want map[End]int) (sent []Resets) {
	r.t.Helper()
	ended, err := r.Clean(now, most, nil, func(reset Resets) error { sent = append(sent, reset); return nil })
	if err != nil {
		r.t.Fatal(err)
	}
	for _, why := range []End{Idle, Removed, Detached, Forbidden} {
		if ended[why] != want[why] {
			r.t.Errorf("ended %v, want %v", ended, want)
		}
	}
	return sent
}

// Idle sessions are reset at both ends with the numbers that each expects; who goes on lives on.
func TestIdleSessionsAreReset(t *testing.T) {
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, f)
			rule := r.rules[1]
			rule.IdleTimeout = time.Minute
			r.must(r.SetRules(map[uint32]Rule{1: rule}))
			r.open(0, true)
			r.open(1, false) // half-open: the server's own timer ends it
			now := r.now()
			r.clean(now+3000, 10, nil)
			later := now + uint32(time.Minute/Tick) + 2
			sent := r.clean(later, 10, map[End]int{Idle: 1})
			if len(sent) != 1 {
				t.Fatalf("%d pairs of resets", len(sent))
			}
			r.isPair(sent[0])
			r.clean(later, 10, nil)
			var s Session
			for s = range r.All() {
				if s.Events&Reset != 0 {
					break
				}
			}
			answer := pkt.TCP(f.dip, r.Local(s).String(), pkt.ACK).With(func(p *pkt.Packet) { p.Seq, p.Ack = 5001, 1001 })
			r.run(r.objects.ToUnderlay, answer.Frame(), "reply", forward)
			if s, ok := r.Get(s.Row); !ok || s.Events.IsOver() {
				t.Errorf("a server that goes on has its session reset: %+v", s)
			}
			is, err := r.Whois(r.Local(s))
			if err != nil || is.Client != s.Client || is.VNI != testVNI || is.VIP.String() != r.vip || is.Service != netip.MustParseAddrPort(r.service).Addr() {
				t.Errorf("%s is %+v, %v", r.Local(s), is, err)
			}
		})
	}
}

// isPair reads the resets of the rig's first connection.
func (r *rig) isPair(sent Resets) {
	r.t.Helper()
	ethernet := make([]byte, 14)
	ethernet[12], ethernet[13] = 0x08, 0x00
	if sent.ToServer[0]>>4 == 6 {
		ethernet[12], ethernet[13] = 0x86, 0xdd
	}
	p := r.decode(append(ethernet, sent.ToServer...))
	var s Session
	for s = range r.All() {
		if s.Client.Port() == 40000 {
			break
		}
	}
	local := r.Local(s)
	if p.Flags != pkt.RST || p.Seq != 1001 || netip.AddrPortFrom(p.IP.Source, p.SourcePort) != local ||
		netip.AddrPortFrom(p.IP.Destination, p.DestinationPort).String() != r.dip || sent.Server != p.IP.Destination {
		r.t.Errorf("to the server: %+v", p)
	}
	client := r.decode(sent.ToClient[8:])
	if client.Flags != pkt.RST || client.Seq != 5001 || netip.AddrPortFrom(client.IP.Source, client.SourcePort).String() != r.vip ||
		netip.AddrPortFrom(client.IP.Destination, client.DestinationPort).String() != r.client {
		r.t.Errorf("to the client: %+v", client)
	}
	if sent.Tunnel.String() != r.tunnel || sent.Host.String() != r.host || sent.ToClient[6] != testVNI || client.Source != [6]byte{2, 9} {
		r.t.Errorf("in VXLAN %x from %s to %s", sent.ToClient[:8], sent.Tunnel, sent.Host)
	}
}

// What is removed or detached ends, the oldest first and no more than may at a time; the server's packets are reset.
func TestSessionsOfWhatIsGoneAreReset(t *testing.T) {
	r := newRig(t, families()["v4 over v4"])
	r.must(r.SetTenant(1, 10, 10, 10))
	for n := range uint16(4) {
		r.open(n, true)
	}
	r.must(r.SetRules(nil))
	if sent := r.clean(r.now()+1, 3, map[End]int{Removed: 3}); len(sent) != 3 {
		t.Errorf("%d pairs", len(sent))
	}
	if sent := r.clean(r.now()+1, 3, map[End]int{Removed: 1}); len(sent) != 1 {
		t.Errorf("%d pairs", len(sent))
	}
	r.must(r.SetAttachments(nil))
	var s Session
	for s = range r.All() {
		break
	}
	answer := pkt.TCP(r.dip, r.Local(s).String(), pkt.ACK)
	r.run(r.objects.ToUnderlay, answer.Frame(), "reset_server_native", forward)
	r.Sweep(r.now()+700, nil)
	r.counts(0, 0, 0)
	r.clean(r.now(), 1, nil)
	if len(r.removed)+len(r.detached) != 0 {
		t.Errorf("kept for no session: %v, %v", r.removed, r.detached)
	}
}

func TestSessionsOfDetachedNetworksAreReset(t *testing.T) {
	r := newRig(t, families()["v6 over v4"])
	r.open(0, true)
	r.open(1, true)
	r.must(r.SetAttachments(nil))
	if sent := r.clean(r.now()+1, 9, map[End]int{Detached: 2}); len(sent) != 2 {
		t.Errorf("%d pairs", len(sent))
	} else if sent[0].ToClient[6] != testVNI {
		t.Errorf("reset in VXLAN %x", sent[0].ToClient[:8])
	}
}

// Without a prefix of the client's family no address of it is known: its session ends all the same, and nobody is reset.
func TestSessionsWithoutALocalPrefixEnd(t *testing.T) {
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			config := testConfig
			config.Local4, config.Local6 = netip.Prefix{}, netip.Prefix{}
			r := newRigWith(t, f, config)
			r.open(0, false)
			for s := range r.All() {
				if local := r.Local(s); local.IsValid() {
					t.Errorf("the server knows the client as %s", local)
				}
			}
			r.must(r.SetAttachments(nil))
			if sent := r.clean(r.now()+1, 9, map[End]int{Detached: 1}); len(sent) != 0 {
				t.Errorf("%d pairs", len(sent))
			}
		})
	}
}
