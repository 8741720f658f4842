package neighbor

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"time"
)

const (
	// Lease is how long after a manager has read the store a mux may answer by what it read.
	Lease = 700 * time.Millisecond
	// Margin is what a new owner waits longer than a lease, for clocks that go at different rates.
	Margin = 20 * time.Millisecond
	// Interval is how often muxes renew their leases, and managers read who can answer.
	Interval = 100 * time.Millisecond
	// Silence is after how long without a request a mux counts as unable to answer.
	Silence = 400 * time.Millisecond
	// MaxVIPs is how many VIPs a mux answers for; it has no lease of more.
	MaxVIPs = 1024
)

// Ledger is what a manager knows of owners, and since when. It has no lock.
type Ledger struct {
	asked   time.Time        // when the newest read of the store began
	puts    map[string]int64 // that it found: how often each mux was noted
	muxes   []Mux
	vips    []netip.Addr
	tenures map[netip.Addr]tenure
}

// tenure is a mux's time as owner of a VIP, without a break.
type tenure struct {
	mux   string
	since time.Time // when a read ended that was the first to show it
}

// Put is the last note of a mux that was ever written, even if it is gone, and how many of it there were.
type Put struct {
	Mux

	Count int64
}

// Wait is a VIP of a mux. Wait is 0, or how long others may still have a lease of it at least: until a grant says 0 the
// mux does not answer for it.
type Wait struct {
	VIP  netip.Addr
	Wait time.Duration
}

// Grant is what a mux may answer for.
type Grant struct {
	Lease  time.Duration // from when the mux sent its request
	Digest uint64        // of VIPs, if none of them has to be waited for; else 0
	VIPs   []Wait        // in order
}

// Confirm takes over which muxes can answer, as a read of the store shows that began at asked and ended at now. Two reads
// that show one owner show that there was no other in between, unless a mux was noted meanwhile that comes before the owner,
// or the owner itself: an owner that was lost comes back only when it is noted anew, or when one before it goes. These VIPs
// are waited for anew; those of other muxes are not, so that a mux that comes and goes delays its own VIPs alone.
func (l *Ledger) Confirm(muxes []Mux, puts []Put, asked, now time.Time) {
	same := slices.EqualFunc(muxes, l.muxes, func(a, b Mux) bool { return a.Name == b.Name && slices.Equal(a.Prefixes, b.Prefixes) })
	counts := make(map[string]int64, len(puts))
	for _, p := range puts {
		if counts[p.Name] = p.Count; p.Count != l.puts[p.Name] {
			l.forget(p, p.Count == l.puts[p.Name]+1)
			same = false
		}
	}
	l.asked, l.puts, l.muxes = asked, counts, muxes
	if !same {
		l.update(now)
	}
}

// forget ends the tenures that a mux may have interrupted. single: it was noted once, and so with no other prefixes.
func (l *Ledger) forget(p Put, single bool) {
	maps.DeleteFunc(l.tenures, func(vip netip.Addr, of tenure) bool {
		return (!single || p.Covers(vip)) && (p.Name == of.mux || isBefore(vip, p.Name, of.mux))
	})
}

// SetVIPs says which VIPs there are, in order.
func (l *Ledger) SetVIPs(vips []netip.Addr, now time.Time) {
	l.vips = vips
	l.update(now)
}

func (l *Ledger) update(now time.Time) {
	next := make(map[netip.Addr]tenure, len(l.vips))
	for _, vip := range l.vips {
		owner := Owner(vip, l.muxes)
		if owner == "" {
			continue
		}
		was, had := l.tenures[vip]
		if !had || was.mux != owner {
			was = tenure{owner, now}
		}
		next[vip] = was
	}
	l.tenures = next
}

// Muxes are those that can answer, as the newest read of the store shows.
func (l *Ledger) Muxes() []Mux { return l.muxes }

// Owner is the mux that answers for the VIP, or is to; empty: none.
func (l *Ledger) Owner(vip netip.Addr) string { return l.tenures[vip].mux }

// Grant is the lease of a mux; false: the newest read of the store is too old for one.
func (l *Ledger) Grant(mux string, now time.Time) (Grant, bool) {
	g := Grant{Lease: l.asked.Add(Lease).Sub(now)}
	if g.Lease <= 0 {
		return Grant{}, false
	}
	digest, waits := fnv.New64a(), false
	for _, vip := range l.vips {
		of := l.tenures[vip]
		if of.mux != mux || len(g.VIPs) == MaxVIPs {
			continue
		}
		wait := max(of.since.Add(Lease+Margin).Sub(l.asked), 0) // by reads: since the newest one it may have lost the VIP
		waits = waits || wait > 0
		g.VIPs = append(g.VIPs, Wait{vip, wait})
		address := vip.As16()
		_, _ = digest.Write(address[:]) // never fails
	}
	if !waits {
		g.Digest = max(digest.Sum64(), 1)
	}
	return g, true
}

// With is the digest of a grant together with other words.
func With(digest uint64, words []string) uint64 {
	if digest == 0 {
		return 0
	}
	all := fnv.New64a()
	_ = binary.Write(all, binary.BigEndian, digest) // never fails
	for _, w := range words {
		_, _ = all.Write([]byte(w))
	}
	return max(all.Sum64(), 1)
}
