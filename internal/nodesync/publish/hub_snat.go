package publish

import (
	"maps"
	"slices"

	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snatport"
	"github.com/weirlb/weir/internal/store"
)

// confirm sends hosts the source NAT that all healthy muxes have acknowledged. A workload that sent with a port before
// a mux knows it would get no reply.
func (h *Hub) confirm(floor model.Generation) {
	n := 0
	for n < len(h.unacknowledged) && h.unacknowledged[n].state.Generation <= floor {
		n++
	}
	if n == 0 {
		return
	}
	before := h.confirmed
	h.confirmed = h.unacknowledged[n-1].state
	for _, told := range h.unacknowledged[:n] {
		for _, key := range told.snat {
			h.tellSNAT(before, key)
		}
	}
	h.unacknowledged = slices.Delete(h.unacknowledged, 0, n)
	for f := range h.snatSnapshots {
		wake(f.wake)
	}
}

// tellSNAT marks a workload's source NAT as due for the hosts that it is on, or was on in the State before. If it only
// has more ranges, that can wait: its host has them by the response to its request.
func (h *Hub) tellSNAT(before *store.State, key model.SNATKey) {
	var wasOn, isOn string
	if before != nil {
		w, _ := before.Ports.Client(key)
		wasOn = w.Host
	}
	w, _ := h.confirmed.Ports.Client(key)
	isOn = w.Host
	if feeds := h.hosts[isOn]; len(feeds) > 0 {
		later := false
		if wasOn == isOn {
			_, was, _ := hostSNAT(before, key)
			_, is, _ := hostSNAT(h.confirmed, key)
			later = grew(was, is)
		}
		for f := range feeds {
			if f.addSNAT(key); later {
				f.scheduleLater()
			} else {
				wake(f.wake)
			}
		}
	}
	if wasOn == isOn {
		return
	}
	for f := range h.hosts[wasOn] {
		f.addSNAT(key)
		wake(f.wake)
	}
}

// grew says whether the workload got ranges and nothing else differs.
func grew(was, is model.HostSNAT) bool {
	for _, r := range was.Ranges {
		if _, kept := slices.BinarySearch(is.Ranges, r); !kept {
			return false
		}
	}
	is.Ranges, is.Written = was.Ranges, was.Written
	return is.Equal(was)
}

// hostSNAT is what the workload of a key has as its host runs it, if there is such a workload.
func hostSNAT(s *store.State, key model.SNATKey) (host string, snat model.HostSNAT, there bool) {
	host, snat, there = nodeconfig.HostSNAT(s.State, key)
	snat.Written = s.PortsWritten.At(key)
	return host, snat, there
}

// changedSNAT are the workloads whose source NAT changed for muxes or hosts, in order.
func changedSNAT(old, s *store.State, delta store.Delta) []model.SNATKey {
	keys := map[model.SNATKey]bool{}
	for name := range delta.VIPs {
		for _, state := range []*store.State{old, s} {
			for key := range snatport.KeysOf(state.VIPs.At(name)) {
				keys[key] = true
			}
		}
	}
	changed := slices.Collect(maps.Keys(delta.Ports)) // what was written tells hosts when
	for key := range keys {
		if delta.Ports[key] {
			continue
		}
		wasMux, hadMux := nodeconfig.MuxSNAT(old.State, key)
		isMux, hasMux := nodeconfig.MuxSNAT(s.State, key)
		wasOn, was, _ := hostSNAT(old, key)
		isOn, is, _ := hostSNAT(s, key)
		if hadMux != hasMux || wasOn != isOn || !wasMux.Equal(isMux) || !was.Equal(is) {
			changed = append(changed, key)
		}
	}
	slices.SortFunc(changed, model.SNATKey.Compare)
	return changed
}

// digests are the digests of source NAT of the newest generations, to compare with those that muxes report.
type digests struct {
	ring [digestsKept]generationDigest
	next int
}

const digestsKept = 4096

type generationDigest struct {
	generation model.Generation
	digest     uint64
	ranges     int
}

// add notes that of a State. While a restore is pending muxes have more than they are told.
func (d *digests) add(s *store.State) {
	if s.Restored.Pending() {
		return
	}
	digest, ranges := s.Ports.Digest()
	d.ring[d.next%digestsKept] = generationDigest{s.Generation, digest, ranges}
	d.next++
}

// at is the digest of a generation. known is false for one that is too old, or was never sent from here.
func (d *digests) at(generation model.Generation) (found generationDigest, known bool) {
	for i := d.next - 1; i >= max(0, d.next-digestsKept); i-- {
		if found = d.ring[i%digestsKept]; found.generation <= generation {
			return found, found.generation == generation
		}
	}
	return generationDigest{}, false
}

// DigestAt is the digest of source NAT as muxes have it at a generation, and the number of ranges. known is false for
// one that is too old, or was never sent from here.
func (h *Hub) DigestAt(generation model.Generation) (ranges int, digest uint64, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, known := h.digests.at(generation)
	return at.ranges, at.digest, known
}

// Resend has a snapshot sent to a node that has a stream here.
func (h *Hub) Resend(node string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range h.muxes {
		if f.mux == node {
			f.snapshotDue = true
			f.schedule()
		}
	}
	for f := range h.hosts[node] {
		f.snapshotSNAT()
		wake(f.wake)
	}
}
