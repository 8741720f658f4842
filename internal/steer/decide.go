package steer

import (
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
)

// Packet is what the rule goes by of a packet.
type Packet struct {
	Protocol   model.Protocol
	SYN        bool       // of TCP, without ACK
	Timestamps bool       // of TCP: it has the option
	Cookie     model.Slot // the low bits of TSecr; 0: none
	Hash       uint32     // that chooses the bucket
}

// Arrival is what the host that a packet arrived at knows of it.
type Arrival struct {
	Own        model.Slot // of the backend behind the tunnel that the packet came to, or OwnByHost; 0: it has none of the endpoint
	TakesNew   bool       // that backend is in buckets
	Known      bool       // that backend has the connection, by a session or a socket
	Timestamps bool       // its workload has answered a SYN with timestamps by one with timestamps
}

// Reason is why a packet goes where it does.
type Reason string

// The reasons.
const (
	ByArrival Reason = "arrival" // a new connection stays where it arrived: its cookie will name that backend
	BySession Reason = "session" // the connection is known here
	ByCookie  Reason = "cookie"  // the segment names the backend
	ByBucket  Reason = "bucket"
)

// Decision is where a packet goes. The zero value is nowhere: it is dropped.
type Decision struct {
	Slot     model.Slot
	Previous model.Slot // the backend that may have the connection if Slot's does not know it: daisy chaining; 0: none
	Reason   Reason
}

// Decide says where a packet of the endpoint goes that a switch brought.
func Decide(e steering.Endpoint, p Packet, at Arrival) Decision {
	home := byBucket(e, p.Hash)
	stays := at.Own != 0 && at.TakesNew
	switch {
	case p.SYN && p.Timestamps && stays && at.Timestamps && e.Cookies == model.CookiesOn:
		return Decision{Slot: at.Own, Reason: ByArrival}
	case p.SYN:
		home.Previous = 0
		return home
	case p.Cookie != 0 && p.Cookie == at.Own && e.Cookies != model.CookiesOff:
		return Decision{Slot: at.Own, Reason: ByCookie}
	case at.Known:
		return Decision{Slot: at.Own, Reason: BySession}
	case p.Cookie != 0 && e.Cookies != model.CookiesOff && e.Lives(p.Cookie):
		return Decision{Slot: p.Cookie, Reason: ByCookie}
	case p.Protocol == model.UDP && e.LocalUDP && stays:
		return Decision{Slot: at.Own, Reason: ByArrival}
	}
	return home
}

// OwnByHost is the own backend of a host with one tunnel for all of its backends, of which locals are those that it may
// choose: arrived is behind the tunnel, and knows the flow or not. It says nothing of the packet, and may be down: only a flow
// of UDP stays with it, as no cookie finds that again once the host chooses others.
func OwnByHost(e steering.Endpoint, locals []model.Slot, p Packet, arrived model.Slot, known bool) model.Slot {
	if !e.Lives(arrived) {
		arrived = 0
	}
	if known && p.Protocol == model.UDP && arrived != 0 || len(locals) == 0 {
		return arrived
	}
	return locals[(p.Hash>>16)%uint32(len(locals))]
}

// byBucket goes to what the bucket names, and knows what it named before while that may have connections.
func byBucket(e steering.Endpoint, hash uint32) Decision {
	now, previous := e.Choice(hash)
	if now == 0 {
		return Decision{}
	}
	if previous == now || !e.Lives(previous) {
		previous = 0
	}
	return Decision{Slot: now, Previous: previous, Reason: ByBucket}
}
