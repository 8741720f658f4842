package traffic

// Rate is in kbit/s.
type Rate int64

// Share is the part of a rate that a rack sends.
type Share struct {
	Rack int32 // index of the rack in its fabric
	Rate Rate
}

// Group is the backends of a VIP in a rack. All backends of a VIP receive the same.
type Group struct {
	Rack     int32
	Backends int32
}

// Demand is the traffic of a VIP.
type Demand struct {
	VIP      string
	External Rate    // from outside of the fabric
	Sources  []Share // ascending by rack
	Backends []Group // ascending by rack
}

// Rate is all that the VIP receives.
func (d Demand) Rate() Rate {
	sum := d.External
	for _, s := range d.Sources {
		sum += s.Rate
	}
	return sum
}
