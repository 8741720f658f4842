package model

// Limits are what the endpoints of a VIP take together each second, over all muxes; 0: as much as comes.
type Limits struct {
	Packets     uint64
	Bytes       uint64 // of whole frames, as they come to a mux
	Connections uint64 // new ones of TCP
}

// MaxLimit bounds each of Limits.
const MaxLimit = 1_000_000_000_000

func (vip VIP) validateLimits(v *validator) {
	l := vip.Limits
	if l == nil {
		return
	}
	if *l == (Limits{}) {
		v.refuse("limits", "must limit packets, bytes or connections")
	}
	if len(vip.Endpoints) == 0 {
		v.refuse("limits", "are of what comes to endpoints, of which there is none")
	}
	l.validate(v, "limits")
}

func (l Limits) validate(v *validator, path string) {
	for field, n := range map[string]uint64{"packets": l.Packets, "bytes": l.Bytes, "connections": l.Connections} {
		if n > MaxLimit {
			v.refuse(path+"."+field, "must be at most %d, is %d", uint64(MaxLimit), n)
		}
	}
}
