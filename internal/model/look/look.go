// Package look names what a mux's program, or a host's, is asked for one packet, and what it answers. Layer 0, as package model.
package look

import (
	"net/netip"
	"time"

	"github.com/weirlb/weir/internal/model"
)

// Explanation is what a mux's program, or a host's, makes of a packet that it was only shown.
type Explanation struct {
	Verdict  string             // "forward_syn", "drop_no_backend": the names of the mux's counters
	Action   string             // "pass", "drop", "transmit", "punt" or ActionDeliver: what would become of the frame
	Layer    string             // what chose the backend: "cookie", "flow table", "bucket", LayerSNAT; empty: nothing did
	Endpoint *model.EndpointKey // nil: the packet is for none
	Hashed   bool               // Hash was computed, and Bucket follows from it
	Hash     uint64             // of the flow, with the pool's key
	Bucket   int
	Buckets  int
	Slot     model.Slot // of the chosen backend; 0: none
	Previous model.Slot // that the packet names for chaining; 0: none
	Tunnel   netip.Addr // of the chosen backend; invalid: none
	Workload netip.Addr // that has the port, of a VIP with source NAT, or that the host delivers to; invalid: none
	Frame    []byte     // as it leaves the program

	// Of a host that delivers the packet.
	Interface string       // that the workload is behind; empty: the host itself
	Reply     *Explanation // of an answer of the workload; nil: none can be foretold
}

// ActionDeliver is the action of a host that hands the packet to a workload.
const ActionDeliver = "deliver"

// LayerSNAT is the layer of what goes back to a workload that left as a VIP.
const LayerSNAT = "source NAT range"

// Capture says which packets to copy, and how many.
type Capture struct {
	Filter     CaptureFilter
	Count      int           // ends after so many packets
	Duration   time.Duration // ends after so long
	SnapLength int           // bytes of each packet at most
}

// CaptureFilter chooses packets: those that fit all that is said. What is zero says nothing.
type CaptureFilter struct {
	Client     netip.Prefix
	ClientPort uint16
	VIP        netip.Addr
	Port       uint16 // of the endpoint
	Protocol   string // "TCP", "UDP" or "ICMP", the last of either family
	Verdict    string // name of a verdict, or what it begins with
}

// CapturedPacket is a copy of a packet on its way into or out of a mux.
type CapturedPacket struct {
	Time    time.Time
	Out     bool
	Frame   []byte // its first bytes
	Length  int    // how many there were
	Verdict string // of the packet: the same on the way in and out
	Comment string // what chose the backend, the bucket, the slot
}
