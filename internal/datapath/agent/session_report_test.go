package agent

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/backlog"
	"github.com/weirlb/weir/internal/pkt"
)

// TestSessionReport opens flows of many clients and counts them by bucket: what was draining is exactly what
// hashes there, by the client's address alone where it has affinity, and carries no cookie.
func TestSessionReport(t *testing.T) {
	const buckets = 16
	key := flowhash.Key{1: 7, 5: 9, 17: 3, 33: 200}
	for _, affinity := range []bool{false, true} {
		r := newRig(t)
		r.SetHashKey(key)
		udp := rule(model.UDP, vip4, native4, native4, native6)
		udp.Buckets, udp.Draining, udp.Affinity, udp.Cookies = buckets, []uint32{2, 3, 11}, affinity, false
		all := rule(model.TCP, allPorts4+":0", interface4, interface4, interface6)
		all.Backend = netip.AddrPortFrom(all.Backend.Addr(), 0)
		idle := rule(model.UDP, otherVIP4, native4, native4, native6)
		idle.Buckets, idle.Draining = buckets, []uint32{0}
		if err := r.Replace([]model.HostBackend{udp, all, idle}); err != nil {
			t.Fatal(err)
		}
		want := []model.BackendSessions{{Key: udp.Key(), Sessions: 200, WithoutCookie: 200}, {Key: idle.Key()}, {Key: all.Key(), Sessions: 1, WithoutCookie: 1}}
		for i := range 200 {
			p := pkt.UDP(fmt.Sprintf("198.51.100.%d:%d", i%20+1, 20000+i), vip4)
			r.run("from_uplink", withoutChecksum(inGUE(p, outer(native4), gue{})), nil)
			flow := model.Flow{
				Protocol: model.UDP, Source: netip.AddrPortFrom(p.IP.Source, p.SourcePort),
				Destination: netip.MustParseAddrPort(vip4),
			}
			if affinity {
				flow.Source = netip.AddrPortFrom(p.IP.Source, 0)
			}
			switch key.Sum(flow) % buckets {
			case 2, 3, 11:
				want[0].Draining++
			}
		}
		r.run("from_uplink", withoutChecksum(inGUE(pkt.TCP(client4, allPorts4+":12345", pkt.SYN), outer(interface4), gue{})), nil)
		got, err := r.Sweep(session.Now(), session.DefaultTimeouts())
		if err != nil || got.Live != 201 || got.Ended != 0 {
			t.Errorf("sweep found %d, ended %d (%v)", got.Live, got.Ended, err)
		}
		if diff := cmp.Diff(want, got.Backends, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("affinity %t (-want +got):\n%s", affinity, diff)
		}
		if want[0].Draining == 0 || want[0].Draining == 200 {
			t.Errorf("%d of 200 flows are draining: it tells nothing", want[0].Draining)
		}
		got, err = r.Sweep(session.Now()+time.Hour, session.DefaultTimeouts())
		if err != nil || got.Live != 0 || len(got.Backends) != 2 {
			t.Errorf("an hour later: %+v (%v)", got, err)
		}
	}
}

// TestSessionReportWithoutKey takes no session for one that nobody waits for.
func TestSessionReportWithoutKey(t *testing.T) {
	r := newRig(t)
	b := rule(model.UDP, vip4, native4, native4, native6)
	b.Buckets, b.Draining = 16, []uint32{2}
	if err := r.Replace([]model.HostBackend{b}); err != nil {
		t.Fatal(err)
	}
	r.run("from_uplink", withoutChecksum(inGUE(pkt.UDP(client4, vip4), outer(native4), gue{})), nil)
	got, err := r.Sweep(session.Now(), session.DefaultTimeouts())
	if err != nil || len(got.Backends) != 1 || got.Backends[0].Draining != 1 {
		t.Errorf("got %+v (%v), not one session of a draining bucket", got, err)
	}
}

// A sweep counts the connections whose SYN came lately and is without an answer, and those that the workload speaks in.
func TestUnansweredSYNsAreCounted(t *testing.T) {
	talks(t, func(t *testing.T, c talk) {
		sweep := func(later time.Duration) []backlog.SYNs {
			t.Helper()
			got, err := c.Sweep(session.Now()+later, session.DefaultTimeouts())
			if err != nil {
				t.Fatal(err)
			}
			return got.SYNs
		}
		c.hears(pkt.SYN, clientISN, 0)
		if got := sweep(0); len(got) != 1 || got[0].Unanswered != 1 || got[0].Answers != 0 {
			t.Errorf("a SYN: %+v", got)
		}
		if got := sweep(session.SYNWindow); len(got) != 0 {
			t.Errorf("later: %+v", got)
		}
		c.answers(pkt.SYN|pkt.ACK, workloadISN, clientNext)
		if got := sweep(0); len(got) != 0 {
			t.Errorf("answered: %+v", got)
		}
	})
}
