package agentd

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/model/steering"
)

// VIPs in switches are named whose new sessions mostly stay without an answer, by the power of two below, the worst first.
func TestFloodsAreReported(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	vip := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, 113, n}) }
	tables := &tables{steered: map[netip.Addr]steering.VIP{}}
	r := &reports{tables: tables}
	var found []session.VIPSessions
	for i, s := range []struct {
		began, answered uint64 // in five seconds
		soft            bool
	}{
		{began: 5 * 1000, answered: 5 * 990}, // a service
		{began: 5 * 1000, answered: 5 * 490}, // 510 a second
		{began: 5 * 4095, answered: 0},
		{began: 5*leastFlood - 1, answered: 0},
		{began: 5 * 9000, answered: 0, soft: true}, // no switch's
		{began: 5 * 4090, answered: 5 * 4000},
	} {
		found = append(found, session.VIPSessions{VIP: vip(byte(i)), Began: s.began, Answered: s.answered})
		if !s.soft {
			tables.steered[vip(byte(i))] = steering.VIP{}
		}
	}
	expect := func(what, want string) {
		t.Helper()
		if got := text(r.floods); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	r.countFloods(found, now)
	expect("what was counted before the first sweep", "")
	r.countFloods(found, now.Add(5*time.Second))
	expect("five seconds", " 203.0.113.2:2048 203.0.113.1:256")
	r.countFloods(found, now.Add(55*time.Second))
	expect("the same in fifty", " 203.0.113.2:256 203.0.113.1:32")
	r.countFloods(nil, now.Add(60*time.Second))
	expect("over", "")
	many := make([]session.VIPSessions, 200)
	for i := range many {
		many[i] = session.VIPSessions{VIP: vip(byte(i)), Began: 1000}
		tables.steered[vip(byte(i))] = steering.VIP{}
	}
	if r.countFloods(many, now.Add(61*time.Second)); len(r.floods) != maxFloods {
		t.Errorf("%d VIPs are named, want %d", len(r.floods), maxFloods)
	}
}

func text(floods []*weirv1.VIPFlood) (all string) {
	for _, f := range floods {
		all += fmt.Sprintf(" %s:%d", f.GetVip(), f.GetUnanswered())
	}
	return all
}
