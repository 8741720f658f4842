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

// Scaled returns the demands with rates that sum to about total: each is rounded down.
func Scaled(demands []Demand, total Rate) []Demand {
	var sum Rate
	for _, d := range demands {
		sum += d.Rate()
	}
	factor := float64(total) / float64(max(1, sum))
	scaled := make([]Demand, len(demands))
	for i, d := range demands {
		scaled[i] = d.scaled(factor)
	}
	return scaled
}

// scaled is the demand with all rates times a factor. A rack that would send nothing is left out.
func (d Demand) scaled(factor float64) Demand {
	next := Demand{
		VIP: d.VIP, External: Rate(float64(d.External) * factor), Sources: make([]Share, 0, len(d.Sources)),
		Backends: d.Backends,
	}
	for _, source := range d.Sources {
		if rate := Rate(float64(source.Rate) * factor); rate > 0 {
			next.Sources = append(next.Sources, Share{Rack: source.Rack, Rate: rate})
		}
	}
	return next
}
