// Package flowstate is what a mux remembers of an endpoint's flows, and which backend it chooses by it: section 4 of the
// design, for the oracle.
package flowstate

import (
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/oracle/inet"
)

// Endpoint is an endpoint, and the flows that are remembered of it.
type Endpoint struct {
	model.MuxEndpoint
	moved []bool // buckets that have moved; nil: none
	flows map[model.Flow]model.Slot
	// unsure are flows that may be among those remembered: the mux may have left out the look, and their packets came
	// to nothing else that tells.
	unsure map[model.Flow]bool
	syns   map[model.Flow]uint32 // of flows at another backend: the sequence number that follows a SYN
}

// New is an endpoint that remembers what old did; nil: nothing.
func New(e model.MuxEndpoint, old *Endpoint) *Endpoint {
	if old == nil {
		return &Endpoint{
			MuxEndpoint: e, flows: map[model.Flow]model.Slot{}, unsure: map[model.Flow]bool{}, syns: map[model.Flow]uint32{},
		}
	}
	next := *old
	next.MuxEndpoint, next.moved = e, old.movedIn(e.Buckets)
	return &next
}

// Packet is what a choice is by.
type Packet struct {
	Flow  model.Flow
	Opens bool       // a SYN without an ACK
	Seq   uint32     // of TCP
	Named model.Slot // by the timestamps of a segment that is no SYN; 0: none
}

// Choice is a backend, and why.
type Choice struct {
	Verdict string
	Backend *model.MuxBackend // nil: there is none
	// Previous is who may know the connection if Backend does not; nil: nobody.
	Previous *model.MuxBackend
	// Or are other verdicts that are as right, by which the same becomes of the packet: a bucket that has not moved names
	// the slot of all its flows, so that the mux may leave out the look, and remember nothing.
	Or []string
	// Seen is to be told which of them the mux gave; empty: it can't be told. Nil if it must be Verdict.
	Seen func(verdict string)
}

// Choose goes by cookie, flow table, bucket, in this order.
func (e *Endpoint) Choose(key flowhash.Key, p Packet) Choice {
	_, known := e.flows[p.Flow]
	known = known && !e.unsure[p.Flow]
	c := e.chooseByLook(key, p)
	if c.Verdict != "forward_flow" && c.Verdict != "forward_bucket" || !e.isCertain(key, p.Flow) {
		return c
	}
	c.Or = []string{"forward_known"}
	if e.unsure[p.Flow] {
		c.Or = append(c.Or, "forward_bucket")
	}
	c.Seen = func(verdict string) {
		switch {
		case known || verdict == "forward_flow" || verdict == "forward_bucket":
			delete(e.unsure, p.Flow)
		case verdict == "":
			e.unsure[p.Flow] = true
		case !e.unsure[p.Flow]:
			delete(e.flows, p.Flow)
		}
	}
	return c
}

// isCertain says whether a flow is where its bucket says, remembered or not.
func (e *Endpoint) isCertain(key flowhash.Key, f model.Flow) bool {
	number, ok := e.number(key, f)
	warm := e.Cookies != model.CookiesSettling || f.Protocol != model.TCP
	if !ok || !warm || e.moved != nil && e.moved[number] {
		return false
	}
	return e.Alive(e.Buckets[number]) != nil && (len(e.Previous) == 0 || e.Previous[number] == 0)
}

func (e *Endpoint) chooseByLook(key flowhash.Key, p Packet) Choice {
	bucket, previous := e.Bucket(key, p.Flow)
	if p.Opens {
		e.noteSYN(p, bucket)
		return Choice{Verdict: "forward_syn", Backend: e.At(bucket)}
	}
	cookie := e.cookie(p.Named)
	if cookie != nil && e.Cookies == model.CookiesOn {
		return Choice{Verdict: "forward_cookie", Backend: cookie}
	}
	e.decide(p)
	slot, known := e.flows[p.Flow]
	if b := e.Alive(slot); known && b != nil {
		return Choice{Verdict: "forward_flow", Backend: b}
	}
	if cookie != nil {
		return Choice{Verdict: "forward_cookie", Backend: cookie}
	}
	c := Choice{Verdict: "forward_bucket", Backend: e.At(bucket)}
	if known {
		c.Verdict = "forward_failover"
	}
	if c.Backend == nil {
		return c
	}
	if b := e.Alive(previous); b != nil && previous != bucket {
		c.Verdict, c.Previous = "forward_chained", b
		return c
	}
	e.flows[p.Flow] = bucket
	return c
}

// noteSYN keeps what is remembered, and the number by which the segment after the SYN is told.
func (e *Endpoint) noteSYN(p Packet, bucket model.Slot) {
	delete(e.syns, p.Flow)
	if slot, known := e.flows[p.Flow]; known && slot != bucket {
		e.syns[p.Flow] = p.Seq + 1
	}
}

// decide ends the note of a SYN, and what is remembered if the segment follows the SYN: its number, without the lower
// 17 bits, is the one noted or the next one.
func (e *Endpoint) decide(p Packet) {
	noted, ok := e.syns[p.Flow]
	if !ok {
		return
	}
	delete(e.syns, p.Flow)
	if p.Seq>>17 == noted>>17 || (p.Seq-1<<17)>>17 == noted>>17 {
		delete(e.flows, p.Flow)
	}
}

// Known is the backend that a connection is at, by the slot that its backend's timestamps name (0:
// none), if that is certain; else nil. Nothing is remembered.
func (e *Endpoint) Known(key flowhash.Key, f model.Flow, cookie model.Slot) *model.MuxBackend {
	named := e.Alive(cookie)
	if named != nil && e.Cookies == model.CookiesOn {
		return named
	}
	_, noted := e.syns[f]
	if slot, known := e.flows[f]; known && !noted && e.Alive(slot) != nil {
		return e.Alive(slot)
	}
	if named != nil && e.Cookies == model.CookiesSettling {
		return named
	}
	if slices.Contains(e.moved, true) {
		return nil
	}
	bucket, _ := e.Bucket(key, f)
	return e.At(bucket)
}

// Bucket is what the flow's bucket names, and what it named before.
func (e *Endpoint) Bucket(key flowhash.Key, f model.Flow) (slot, previous model.Slot) {
	number, ok := e.number(key, f)
	if !ok {
		return 0, 0
	}
	if len(e.Previous) > 0 {
		previous = e.Previous[number]
	}
	return e.Buckets[number], previous
}

// number is that of the flow's bucket; false: there are none.
func (e *Endpoint) number(key flowhash.Key, f model.Flow) (number int, ok bool) {
	if len(e.Buckets) == 0 {
		return 0, false
	}
	if e.Affinity { // all that one client sends to the endpoint
		f.Source = netip.AddrPortFrom(f.Source.Addr(), 0)
		f.Destination = netip.AddrPortFrom(f.Destination.Addr(), e.Key.Port)
	}
	return int(inet.KeyedHash(key, f) % uint64(len(e.Buckets))), true
}

// cookie is the backend that a packet's timestamps name, or nil.
func (e *Endpoint) cookie(named model.Slot) *model.MuxBackend {
	if e.Cookies != model.CookiesOn && e.Cookies != model.CookiesSettling {
		return nil
	}
	return e.Alive(named)
}

// At is the backend of a slot; nil: there is none.
func (e *Endpoint) At(slot model.Slot) *model.MuxBackend {
	for i := range e.Backends {
		if e.Backends[i].Slot == slot {
			return &e.Backends[i]
		}
	}
	return nil
}

// Alive is the backend of a slot, unless it is down.
func (e *Endpoint) Alive(slot model.Slot) *model.MuxBackend {
	if b := e.At(slot); b != nil && !b.Down {
		return b
	}
	return nil
}

// movedIn are the buckets of next that have moved, ever: those that name another slot for some hash than e's. Both sizes
// are powers of two, so the larger one tells all hashes apart. An endpoint without buckets has one, for all hashes.
func (e *Endpoint) movedIn(next []model.Slot) []bool {
	if len(e.Buckets) == 0 && e.moved == nil {
		return nil // it forwarded nothing
	}
	moved := make([]bool, max(len(next), 1))
	for hash := range max(len(e.Buckets), len(next), len(e.moved)) {
		to := &moved[hash%len(moved)]
		*to = *to || len(e.Buckets) == 0 || len(next) == 0 || e.Buckets[hash%len(e.Buckets)] != next[hash%len(next)] ||
			e.moved != nil && e.moved[hash%len(e.moved)]
	}
	return moved
}
