package slowpath

import (
	"time"

	"github.com/weirlb/weir/internal/datapath/mux"
)

// Bounds of what is held.
const (
	MaxHeld      = 1024
	MaxHeldBytes = 2 << 20
	HoldTime     = time.Second
)

// heldFragment came before the first one of its datagram.
type heldFragment struct {
	frame []byte
	until time.Time
}

// hold keeps early fragments, by datagram. The zero value is empty.
type hold struct {
	fragments map[mux.FragmentKey][]heldFragment
	count     int
	bytes     int
}

// add keeps the frame until it is taken or expires; false when there is no room.
func (h *hold) add(key mux.FragmentKey, frame []byte, now time.Time) bool {
	if h.count >= MaxHeld || h.bytes+len(frame) > MaxHeldBytes {
		return false
	}
	if h.fragments == nil {
		h.fragments = map[mux.FragmentKey][]heldFragment{}
	}
	h.fragments[key] = append(h.fragments[key], heldFragment{frame: frame, until: now.Add(HoldTime)})
	h.count++
	h.bytes += len(frame)
	return true
}

// take gives back the fragments of a datagram, in the order that they came in.
func (h *hold) take(key mux.FragmentKey) [][]byte {
	var frames [][]byte
	for _, held := range h.fragments[key] {
		frames = append(frames, held.frame)
		h.count--
		h.bytes -= len(held.frame)
	}
	delete(h.fragments, key)
	return frames
}

// expire forgets what was held for too long, and says how many that were.
func (h *hold) expire(now time.Time) (forgotten int) {
	for key, held := range h.fragments {
		kept := held[:0]
		for _, f := range held {
			if f.until.After(now) {
				kept = append(kept, f)
				continue
			}
			h.count--
			h.bytes -= len(f.frame)
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
