package overlay

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/model"
)

// MaxBackends is how many pairs of an attachment and a backend have counters; see backend_numbers in C.
const MaxBackends = 1<<12 - 1

// RTTBuckets is how many buckets handshake RTTs are counted in.
const RTTBuckets = int(overlayOverlayRttOVERLAY_RTT_BUCKETS)

// Backend is a backend of this host for clients by one attachment, by their numbers.
type Backend struct{ Attachment, Rule uint32 }

// Compare orders backends.
func (b Backend) Compare(other Backend) int {
	return cmp.Or(cmp.Compare(b.Attachment, other.Attachment), cmp.Compare(b.Rule, other.Rule))
}

// BackendTraffic is what went between clients by an attachment and a backend.
type BackendTraffic struct {
	In, Out   model.Counter // from clients, and from the backend
	Opened    uint64
	Confirmed uint64 // of these, those that the client has acknowledged
	Refused   uint64 // for lack of room
	Reset     uint64 // by either end
	Repeated  uint64 // SYNs that were sent again
	Cleaned   uint64 // sessions that the agent ended, since it started
}

// Handshakes are the times from servers' SYN-ACKs to clients' acknowledgements.
type Handshakes struct {
	Sum     time.Duration
	Buckets [RTTBuckets]uint64 // by RTTBound
}

// RTTBound is what all RTTs of a bucket are less than; the last bucket has none.
func RTTBound(bucket int) time.Duration {
	if bucket >= RTTBuckets-1 {
		return math.MaxInt64
	}
	return 1 << (int(overlayOverlayRttOVERLAY_RTT_SHIFT) + bucket)
}

// Count is how many handshakes there were.
func (h Handshakes) Count() (n uint64) {
	for _, b := range h.Buckets {
		n += b
	}
	return n
}

// Statistics are the counters by attachment and backend.
type Statistics struct {
	objects *overlayObjects

	own     sync.Mutex        // guards the below
	cleaned map[uint32]uint64 // by number of the counters
	rtts    map[uint32]bool   // attachments that have a row
}

func newStatistics(objects *overlayObjects) *Statistics {
	return &Statistics{objects: objects, cleaned: map[uint32]uint64{}, rtts: map[uint32]bool{}}
}

// SetBackends makes the pairs that have counters exactly those. A number is another pair's only when no session has it.
func (s *Statistics) SetBackends(numbers map[Backend]uint32) error {
	rows := make(map[overlayOverlayBackendKey]uint32, len(numbers))
	for b, number := range numbers {
		rows[overlayOverlayBackendKey{Attachment: b.Attachment, Rule: b.Rule}] = number
	}
	if err := abi.WriteTable(s.objects.BackendNumbers, rows); err != nil {
		return fmt.Errorf("set counters of backends: %w", err)
	}
	return nil
}

// Backends are the pairs that have counters, and their numbers.
func (s *Statistics) Backends() (map[Backend]uint32, error) {
	rows, err := abi.ReadTable[overlayOverlayBackendKey, uint32](s.objects.BackendNumbers)
	if err != nil {
		return nil, fmt.Errorf("read counters of backends: %w", err)
	}
	numbers := make(map[Backend]uint32, len(rows))
	for key, number := range rows {
		numbers[Backend{key.Attachment, key.Rule}] = number
	}
	return numbers, nil
}

// ForgetBackend has counters begin at zero: their number was another pair's.
func (s *Statistics) ForgetBackend(number uint32) error {
	s.own.Lock()
	defer s.own.Unlock()
	delete(s.cleaned, number)
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	if err := s.objects.BackendTraffic.Put(number, make([]overlayOverlayBackendTraffic, cpus)); err != nil {
		return fmt.Errorf("clear counters %d of a backend: %w", number, err)
	}
	return nil
}

// BackendTraffic adds up what the CPUs have counted.
func (s *Statistics) BackendTraffic(number uint32) (sum BackendTraffic, err error) {
	var each []overlayOverlayBackendTraffic
	if err := s.objects.BackendTraffic.Lookup(number, &each); err != nil {
		return sum, fmt.Errorf("read counters %d of a backend: %w", number, err)
	}
	for _, t := range each {
		sum.In.Packets, sum.In.Bytes = sum.In.Packets+t.In.Packets, sum.In.Bytes+t.In.Bytes
		sum.Out.Packets, sum.Out.Bytes = sum.Out.Packets+t.Out.Packets, sum.Out.Bytes+t.Out.Bytes
		sum.Opened += t.Opened
		sum.Confirmed += t.Confirmed
		sum.Refused += t.Refused
		sum.Reset += t.Reset
		sum.Repeated += t.Repeated
	}
	s.own.Lock()
	defer s.own.Unlock()
	sum.Cleaned = s.cleaned[number]
	return sum, nil
}

func (s *Statistics) countCleaned(number uint32) {
	if number == 0 {
		return
	}
	s.own.Lock()
	defer s.own.Unlock()
	s.cleaned[number]++
}

// Handshakes adds up what the CPUs have counted of an attachment.
func (s *Statistics) Handshakes(attachment uint32) (sum Handshakes, err error) {
	var each []overlayOverlayHandshakes
	err = s.objects.HandshakeRtts.Lookup(attachment, &each)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return sum, nil
	}
	if err != nil {
		return sum, fmt.Errorf("read handshakes of attachment %d: %w", attachment, err)
	}
	for _, h := range each {
		sum.Sum += time.Duration(h.Ns)
		for i, n := range h.Buckets {
			sum.Buckets[i] += n
		}
	}
	return sum, nil
}

// setHandshakes has exactly those attachments count their handshakes; known are those that may count them until now.
func (s *Statistics) setHandshakes(known, want map[uint32]Attachment) error {
	s.own.Lock()
	defer s.own.Unlock()
	for number := range known {
		if _, kept := want[number]; kept {
			continue
		}
		if err := s.objects.HandshakeRtts.Delete(number); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forget handshakes of attachment %d: %w", number, err)
		}
	}
	maps.DeleteFunc(s.rtts, func(number uint32, _ bool) bool { _, kept := want[number]; return !kept })
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	none := make([]overlayOverlayHandshakes, cpus)
	for number := range want {
		if s.rtts[number] {
			continue
		}
		err := s.objects.HandshakeRtts.Update(number, none, ebpf.UpdateNoExist)
		if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
			return fmt.Errorf("count handshakes of attachment %d: %w", number, err)
		}
		s.rtts[number] = true
	}
	return nil
}
