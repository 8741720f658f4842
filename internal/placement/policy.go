package placement

import (
	"fmt"

	"github.com/weirlb/weir/internal/traffic"
)

// Algorithm chooses among candidates.
type Algorithm int

const (
	// Repair keeps what fits where it is and places the rest by the least touched maximum utilisation. What then has no
	// place may exchange room with others, if that brings more traffic to switches.
	Repair Algorithm = iota
	// Greedy is the paper's: the least maximum utilisation of all resources, from scratch (Non-sticky).
	Greedy
	// Random is the paper's: the first candidate that fits, in an order drawn for each VIP.
	Random
	// Sticky is the paper's: as Greedy, but a VIP moves only if that lowers the maximum by more than Delta.
	Sticky
	// Keep places nothing anew: what no longer fits goes to software (the paper's One-time).
	Keep
)

var algorithms = [...]string{"repair", "greedy", "random", "sticky", "keep"}

// String is the name of the algorithm.
func (a Algorithm) String() string {
	if a < 0 || int(a) >= len(algorithms) {
		return fmt.Sprintf("algorithm(%d)", int(a))
	}
	return algorithms[a]
}

// Spread is which sets of several switches may announce a VIP.
type Spread int

const (
	// One is single switches only.
	One Spread = iota
	// Anycast adds one core of each plane, all cores, and all aggregation switches of a container.
	Anycast
	// Twins adds all aggregation switches of two containers.
	Twins
)

var spreads = [...]string{"one", "anycast", "twins"}

// String is the name of the spread.
func (s Spread) String() string {
	if s < 0 || int(s) >= len(spreads) {
		return fmt.Sprintf("spread(%d)", int(s))
	}
	return spreads[s]
}

// Policy is how VIPs are placed. Its zero value is Repair on single switches without a budget.
type Policy struct {
	Algorithm     Algorithm
	StopAtMisfit  bool    // stop at the first VIP that does not fit, as section 4.1 has it
	Delta         float64 // of Sticky; the paper has 0.05
	Spread        Spread
	FailureBudget int64  // 1/1000000 of all traffic that a failure may send to software muxes; 0: no bound
	ExchangeWork  int64  // of Repair: links that an exchange looks at; 0: 800 million; negative: what fits never moves
	Seed          uint64 // of the order of candidates that tie
	VIPs          map[string]VIPPolicy
	Exclude       []string // switches that take no VIP
	// Whole is up to how many backends of a VIP each switch of a set holds all of them, not its part. Parts of others may
	// have a backend more: one that is in two of them.
	Whole int64
	// Groups bounds by switch, for those that are in it, how many backends of a VIP one has.
	Groups map[string]int64
}

// check refuses what can't be meant.
func (p Policy) check() error {
	switch {
	case p.FailureBudget < 0 || p.FailureBudget > 1_000_000:
		return fmt.Errorf("failure budget of %d millionths: must be from 0 to 1000000", p.FailureBudget)
	case !(p.Delta >= 0 && p.Delta <= 1):
		return fmt.Errorf("delta %v: must be from 0 to 1", p.Delta)
	}
	return nil
}

// VIPPolicy is what is asked for a single VIP.
type VIPPolicy struct {
	Never   bool     // stays with the software muxes
	Require bool     // goes before others
	Pin     []string // exactly these switches
	Most    int      // so many switches at once at most; 0: no bound
	Avoid   []string // switches that it can't be on
}

// Where is the switches that announce each VIP, by names. A VIP that is not in it is with the software muxes.
type Where map[string][]string

// Result is a placement.
type Result struct {
	Placed   []Placed   // by VIP
	Unplaced []Unplaced // by VIP
	Total    traffic.Rate
	Hardware traffic.Rate // of it on switches
	HotLinks []HotLink    // most used first
	Highest  float64      // utilisation of the most used resource
}

// Placed is a VIP on switches.
type Placed struct {
	VIP      string
	Rate     traffic.Rate
	Switches []int32 // ascending
}

// Unplaced is a VIP that stays with the software muxes.
type Unplaced struct {
	VIP      string
	Rate     traffic.Rate
	Required bool
	Resource Resource // that binds
	Reason   string
}

// HotLink is a link with much traffic of VIPs.
type HotLink struct {
	Link        int32        `json:"-"`
	Name        string       `json:"name"`
	Rate        traffic.Rate `json:"kbitPerS"`    // of VIPs
	Utilisation float64      `json:"utilisation"` // of what placement may use
}
