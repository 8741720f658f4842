package neighbor

import (
	"encoding/binary"
	"hash/fnv"
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
	asked   time.Time // when the newest read of the store began
	version int64     // that it found
	muxes   []Mux
	vips    []netip.Addr
	tenures map[netip.Addr]tenure
}

// tenure is a mux's time as owner of a VIP, without a break.
type tenure struct {
	mux   string
	since time.Time // when a read ended that was the first to show it
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

// Confirm takes over which muxes can answer, as a read of the store shows that began at asked and ended at now. The version
// is another one whenever a mux was added since, even if it is gone again: two reads of one version that show one owner show
// that there was no other in between, as an owner that was lost comes back only when a mux is added.
func (l *Ledger) Confirm(muxes []Mux, version int64, asked, now time.Time) {
	same := slices.EqualFunc(muxes, l.muxes, func(a, b Mux) bool { return a.Name == b.Name && slices.Equal(a.Prefixes, b.Prefixes) })
	if version != l.version {
		l.tenures, same = nil, false
	}
	l.asked, l.version, l.muxes = asked, version, muxes
	if !same {
		l.update(now)
	}
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
