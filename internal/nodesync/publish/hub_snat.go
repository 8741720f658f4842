package publish

import (
	"maps"
	"slices"

	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snat"
	"github.com/weirlb/weir/internal/snatport"
	"github.com/weirlb/weir/internal/store"
)

// snatRelease holds the source NAT of hosts back until all healthy muxes have acknowledged it. A workload that sent
// with a port before a mux knows it would get no reply.
type snatRelease struct {
	unacknowledged []heldState // States that were sent to muxes, and not acknowledged by all
	// confirmed is the newest State that all healthy muxes have acknowledged: hosts get its source NAT.
	confirmed *store.State
	snapshots map[*HostFeed]bool // feeds that wait for a snapshot
}

// confirm sends hosts the source NAT up to a generation that all healthy muxes have acknowledged.
func (r *snatRelease) confirm(floor model.Generation, hosts map[string]map[*HostFeed]bool) {
	n := 0
	for n < len(r.unacknowledged) && r.unacknowledged[n].state.Generation <= floor {
		n++
	}
	if n == 0 {
		return
	}
	before := r.confirmed
	r.confirmed = r.unacknowledged[n-1].state
	for _, sent := range r.unacknowledged[:n] {
		for _, key := range sent.snat {
			r.add(before, key, hosts)
		}
	}
	r.unacknowledged = slices.Delete(r.unacknowledged, 0, n)
	for f := range r.snapshots {
		f.wake.Set()
	}
}

// add marks a workload's source NAT as due for the hosts that it is on, or was on in the State before. If it only
// has more ranges, that can wait: its host has them by the response to its request.
func (r *snatRelease) add(before *store.State, key model.SNATKey, hosts map[string]map[*HostFeed]bool) {
	var wasOn, isOn string
	if before != nil {
		w, _ := before.Ports.Client(key)
		wasOn = w.Host
	}
	w, _ := r.confirmed.Ports.Client(key)
	isOn = w.Host
	if feeds := hosts[isOn]; len(feeds) > 0 {
		later := false
		if wasOn == isOn {
			_, was, _ := hostSNAT(before, key)
			_, is, _ := hostSNAT(r.confirmed, key)
			later = grew(was, is)
		}
		for f := range feeds {
			if f.addSNAT(key); later {
				f.scheduleLater()
			} else {
				f.wake.Set()
			}
		}
	}
	if wasOn == isOn {
		return
	}
	for f := range hosts[wasOn] {
		f.addSNAT(key)
		f.wake.Set()
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

// muxSNAT is what a workload has as muxes run it, if there is such a workload.
func muxSNAT(s *store.State, key model.SNATKey) (of model.MuxSNAT, there bool) {
	of, there = nodeconfig.MuxSNAT(s.State, key)
	of.Written = s.PortsWritten.At(key)
	return of, there
}

// snatChange is a workload whose source NAT changed.
type snatChange struct {
	key    model.SNATKey
	before snat.List // that muxes had of it; zero: none
}

// rangesOfRow is how many ranges of a list weigh as much as a row, where changes are kept.
const rangesOfRow = 32

// newSNATChanges are changes of what muxes had by the State before, if there was one.
func newSNATChanges(before *store.State, keys []model.SNATKey) []snatChange {
	all := make([]snatChange, 0, len(keys))
	for _, key := range keys {
		change := snatChange{key: key}
		if before != nil {
			if of, there := muxSNAT(before, key); there {
				change.before = snat.List{Written: of.Written, Ranges: of.Ranges}
			}
		}
		all = append(all, change)
	}
	return all
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
	for f := range h.muxes[node] {
		f.snapshotDue = true
		f.schedule()
	}
	for f := range h.hosts[node] {
		f.snapshotSNAT()
		f.wake.Set()
	}
}
