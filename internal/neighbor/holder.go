package neighbor

import (
	"net/netip"
	"slices"
	"time"
)

// never is later than any time.
const never = time.Duration(1<<63 - 1)

// Holder is what a mux knows of its lease. Times are of a clock that also goes while the machine sleeps, since it began.
// It has no lock.
type Holder struct {
	Until time.Duration // the end of the lease
	takes map[netip.Addr]time.Duration
}

// Renew takes over the response to a request that was sent at a time. known: the mux has the VIPs already.
func (h *Holder) Renew(vips []Wait, known bool, lease, sent, now time.Duration) {
	lapsed := now >= h.Until
	h.Until = sent + lease // not the later one: that may be of other VIPs
	if known {
		if lapsed { // nobody has to be waited for, or the manager would have said so
			for vip := range h.takes {
				h.takes[vip] = now
			}
		}
		return
	}
	next := make(map[netip.Addr]time.Duration, len(vips))
	for _, w := range vips {
		at, had := h.takes[w.VIP]
		switch {
		case had && !lapsed && at <= now: // it is held, and no other can have a lease before this one's ends
		case w.Wait == 0:
			at = now
		default:
			at = never
		}
		next[w.VIP] = at
	}
	h.takes = next
}

// Owned are all VIPs of the mux, in order, and from when on it may answer for each.
func (h *Holder) Owned(each func(vip netip.Addr, from time.Duration)) {
	for _, vip := range h.sorted() {
		each(vip, h.takes[vip])
	}
}

// Held are the VIPs that the mux may answer for until Until, in order.
func (h *Holder) Held(now time.Duration) (vips []netip.Addr) {
	if now >= h.Until {
		return nil
	}
	for _, vip := range h.sorted() {
		if h.takes[vip] <= now {
			vips = append(vips, vip)
		}
	}
	return vips
}

// Drop forgets all VIPs: the mux has none any more.
func (h *Holder) Drop() { h.takes = nil }

func (h *Holder) sorted() []netip.Addr {
	vips := make([]netip.Addr, 0, len(h.takes))
	for vip := range h.takes {
		vips = append(vips, vip)
	}
	slices.SortFunc(vips, netip.Addr.Compare)
	return vips
}
