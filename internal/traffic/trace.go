package traffic

import "fmt"

// External is the rack of clients outside of the fabric in a trace.
const External = "external"

// MaxRate bounds the rate of a line and the sum of an interval: 1 Pbit/s, so that sums of loads never overflow.
const MaxRate Rate = 1e12

// MaxBackends bounds the backends of a VIP.
const MaxBackends = 1 << 18

// header is the first line of a trace that is no comment.
const header = "interval,vip,rack,kbit_per_s,backends"

// commentMark is what a line begins with that is a comment.
const commentMark = '#'

// Interval is what all VIPs receive in one interval of a trace.
type Interval struct {
	Number  int
	Demands []Demand // ascending by VIP
}

// Rate is all that the VIPs receive.
func (i Interval) Rate() Rate {
	var sum Rate
	for _, d := range i.Demands {
		sum += d.Rate()
	}
	return sum
}

// Limits bound a trace. A Reader needs about 100 bytes for each of Rows, and the names of the VIPs.
type Limits struct {
	LineBytes int
	Lines     int // of the whole trace
	Rows      int // lines of one interval
	VIPs      int // of one interval
	NameBytes int // of a VIP
}

// DefaultLimits hold a trace of 100 000 VIPs with 40 lines each.
var DefaultLimits = Limits{LineBytes: 1024, Lines: 1e9, Rows: 4 << 20, VIPs: 1 << 18, NameBytes: 253}

// LineError is a line of a trace that was refused.
type LineError struct {
	Line   int // from 1
	Reason string
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Reason) }
