package agent

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// Of TestFor of package mss: 1500 less the header of connections behind tunnels of IPv4.
const large4, large6 = 1396, 1370

// Clients' segments leave room for the largest outer header that connections may come in, which began behind the tunnels of
// the host. A new process goes on with that.
func TestSegmentsByFamiliesOfTunnels(t *testing.T) {
	r := newRig(t)
	r.wantAnnounced("tunnels of both", clamped4, clamped6)
	v4, v6 := rule(model.TCP, vip4, native4, native4, native6), rule(model.TCP, otherVIP4, native6, native4, native6)
	set := func(all ...model.HostBackend) {
		t.Helper()
		if err := r.Replace(all); err != nil {
			t.Fatal(err)
		}
	}
	set(v4)
	r.wantAnnounced("IPv4 alone, whatever peers have", large4, large6)
	set(v4, v6)
	r.wantAnnounced("one of IPv6", clamped4, clamped6)
	if err := r.Apply(nil, []model.HostBackendKey{v6.Key()}); err != nil {
		t.Fatal(err)
	}
	r.wantAnnounced("without it", large4, large6)

	next := newDatapath(Config{MaxRules: DefaultMaxRules}, nil)
	next.objects = r.objects
	next.mu.Lock()
	err := errors.Join(next.Rules.Read(), next.SetTunnels())
	next.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	r.wantAnnounced("adopted", large4, large6)
	if err := next.Apply([]model.HostBackend{v6}, nil); err != nil {
		t.Fatal(err)
	}
	r.wantAnnounced("one of IPv6 for who adopted them", clamped4, clamped6)
}

// A workload's own connections are answered behind its tunnel too.
func TestSegmentsBySourceNAT(t *testing.T) {
	r := newRig(t)
	if err := r.Replace([]model.HostBackend{rule(model.TCP, vip4, native4, native4, native6)}); err != nil {
		t.Fatal(err)
	}
	r.wantAnnounced("IPv4 alone", large4, large6)
	dip := netip.MustParseAddr(interface4)
	leaves := model.HostSNAT{Key: model.SNATKey{VIP: netip.MustParseAddrPort(vip4).Addr(), Address: dip}, Tunnel: netip.MustParseAddr(interface6)}
	if err := r.SetSNAT([]model.HostSNAT{leaves}, nil); err != nil {
		t.Fatal(err)
	}
	r.wantAnnounced("source NAT behind a tunnel of IPv6", clamped4, clamped6)
	if err := r.SetSNAT(nil, nil); err != nil {
		t.Fatal(err)
	}
	r.wantAnnounced("without it", large4, large6)
}

// wantAnnounced is what a workload's SYN/ACK of vip4 says after the programs have seen it, and what one of IPv6 would.
func (r *rig) wantAnnounced(what string, mss4 uint16, mss6 uint32) {
	r.t.Helper()
	in := pkt.TCP(client4, vip4, pkt.SYN, pkt.MSS(8960)).Inside(outer(native4))
	delivers := delivered(in, native4)
	answer := replyTo(delivers, pkt.SYN|pkt.ACK, pkt.MSS(8960))
	if got := r.run("from_uplink", in.Frame(), nil); got.verdict != "deliver_native" {
		r.t.Fatalf("%s: SYN: %s", what, got.verdict)
	}
	want := replyTo(delivers, pkt.SYN|pkt.ACK, pkt.MSS(mss4)).With(from(vip4))
	r.check(what, outbound("to_uplink", answer, "reply_native", &want))
	var s bpf.AgentAgentSettings
	if err := r.objects.Settings.Get(&s); err != nil || s.Mss6 != mss6 {
		r.t.Errorf("%s: over IPv6 workloads may announce %d, not %d: %v", what, s.Mss6, mss6, err)
	}
}
