package agentd

import (
	"cmp"
	"math/bits"
	"net/netip"
	"slices"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/agent/session"
)

const (
	// maxFloods bounds the VIPs that a report names.
	maxFloods = 64
	// leastFlood is how many sessions stay without an answer in a second at least of one that is named.
	leastFlood = 32
)

// countFloods notes which VIPs in switches have most of their new sessions go without an answer: a switch guards none.
func (r *reports) countFloods(vips []session.VIPSessions, now time.Time) {
	took := now.Sub(r.swept).Seconds()
	first := r.swept.IsZero()
	r.swept, r.floods = now, nil
	if first || took <= 0 {
		return
	}
	for _, v := range vips {
		unanswered := perSecond(v.Began-v.Answered, took)
		if unanswered >= leastFlood && v.Began >= 2*v.Answered && r.tables.steers(v.VIP) {
			r.floods = append(r.floods, &weirv1.VIPFlood{Vip: v.VIP.String(), Unanswered: unanswered})
		}
	}
	slices.SortStableFunc(r.floods, func(a, b *weirv1.VIPFlood) int { return cmp.Compare(b.GetUnanswered(), a.GetUnanswered()) })
	r.floods = r.floods[:min(len(r.floods), maxFloods)]
}

// perSecond is the power of two below a rate.
func perSecond(n uint64, seconds float64) uint32 {
	rate := uint64(min(float64(n)/seconds, 1<<31))
	if rate == 0 {
		return 0
	}
	return 1 << (bits.Len64(rate) - 1)
}

// steers says whether switches may bring packets of the VIP.
func (t *tables) steers(vip netip.Addr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, steered := t.steered[vip]
	return steered
}
