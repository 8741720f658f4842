package slowpath

import (
	"net/netip"
	"time"

	"github.com/weirlb/weir/internal/datapath/mux"
)

// Bounds of held fragments.
const (
	MaxHeld      = 1024
	MaxHeldBytes = 2 << 20
	HoldTime     = time.Second
)

// leastHeld is the least size that a fragment counts for, in bytes, so that the bound on bytes bounds their number too.
const leastHeld = MaxHeldBytes / MaxHeld

// heldFragment is a fragment that arrived before the first one of its datagram.
type heldFragment struct {
	frame []byte
	until time.Time
}

func (f heldFragment) size() int { return max(len(f.frame), leastHeld) }

// hold keeps early fragments by datagram. VIPs share the room: when it is full, the VIP with most of it loses its
// oldest datagram to one with less. The zero value is empty.
type hold struct {
	fragments map[mux.FragmentKey][]heldFragment
	count     int
	size      int
	vips      map[netip.Addr]int // bytes by VIP
}

// add keeps the frame until it is taken or expires. It returns how many fragments were dropped for want of room:
// evicted ones, or the frame itself.
func (h *hold) add(key mux.FragmentKey, frame []byte, now time.Time) (dropped int) {
	if h.fragments == nil {
		h.fragments, h.vips = map[mux.FragmentKey][]heldFragment{}, map[netip.Addr]int{}
	}
	f := heldFragment{frame: frame, until: now.Add(HoldTime)}
	for h.size+f.size() > MaxHeldBytes {
		greediest := h.greediest()
		if h.vips[greediest] <= h.vips[key.Destination]+f.size() {
			return dropped + 1
		}
		dropped += len(h.remove(h.oldest(greediest)))
	}
	h.fragments[key] = append(h.fragments[key], f)
	h.count++
	h.size += f.size()
	h.vips[key.Destination] += f.size()
	return dropped
}

// greediest is the VIP with most bytes.
func (h *hold) greediest() (greediest netip.Addr) {
	for vip, size := range h.vips {
		if size > h.vips[greediest] {
			greediest = vip
		}
	}
	return greediest
}

// oldest is the VIP's oldest datagram.
func (h *hold) oldest(vip netip.Addr) (oldest mux.FragmentKey) {
	var until time.Time
	for key, held := range h.fragments {
		if key.Destination == vip && (until.IsZero() || held[0].until.Before(until)) {
			oldest, until = key, held[0].until
		}
	}
	return oldest
}

// remove removes and returns the fragments of a datagram, in order of arrival.
func (h *hold) remove(key mux.FragmentKey) [][]byte {
	var frames [][]byte
	for _, held := range h.fragments[key] {
		frames = append(frames, held.frame)
		h.forget(key, held)
	}
	delete(h.fragments, key)
	return frames
}

// forget removes a fragment from the counts.
func (h *hold) forget(key mux.FragmentKey, f heldFragment) {
	h.count--
	h.size -= f.size()
	if h.vips[key.Destination] -= f.size(); h.vips[key.Destination] == 0 {
		delete(h.vips, key.Destination)
	}
}

// expire drops fragments that were held for too long, and returns their number.
func (h *hold) expire(now time.Time) (forgotten int) {
	for key, held := range h.fragments {
		kept := held[:0]
		for _, f := range held {
			if f.until.After(now) {
				kept = append(kept, f)
				continue
			}
			h.forget(key, f)
			forgotten++
		}
		if len(kept) == 0 {
			delete(h.fragments, key)
			continue
		}
		h.fragments[key] = kept
	}
	return forgotten
}
