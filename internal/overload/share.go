package overload

import (
	"math"
	"net/netip"
	"time"

	"github.com/weirlb/weir/internal/fairshare"
)

// Demand is a VIP that has packets come, and what it may ask for.
type Demand struct {
	VIP       netip.Addr
	Tenant    string        // empty: not known, so it counts as one of its own
	Workloads int           // behind the VIP
	Offered   Rate          // all that the program saw come
	Sources   []SourceShare // of Offered.Packets, by where they come from, if that is known; the largest first
	Unnamed   float64       // the largest part that a prefix may have that Sources leaves out
}

// Rate is packets and bytes a second.
type Rate struct{ Packets, Bytes float64 }

// SourceShare is what comes from a prefix of sources.
type SourceShare struct {
	Prefix netip.Prefix
	Share  float64
}

// Source is how much came from a prefix of sources, about.
type Source struct {
	Prefix  netip.Prefix
	Packets float64
}

// Cut is what a VIP loses: shares of its packets.
type Cut struct {
	All         float64                  // of all that it is offered
	Others      float64                  // of packets from prefixes that Sources does not have
	Sources     map[netip.Prefix]float64 // of packets from these
	TenantShare float64                  // of the workloads of all demands' tenants that its tenant has
}

const (
	// dropCost is what dropping a packet costs a mux, of what it costs to send it on, about.
	dropCost = 0.3
	// budgetMargin is what is taken off what a mux was seen to do when it lost packets, at most: twice what it lost
	// is enough where little was.
	budgetMargin = 0.05
	// budgetFloor is what it goes on to send on, of what it can, whatever else comes: if dropping alone is too
	// much for it, more of that helps nobody.
	budgetFloor = 1.0 / 4
	// budgetGrowth is how much more it tries a second later, once nothing was lost for budgetHold: a trial that
	// fails costs everybody, so it is a small one.
	budgetGrowth, budgetHold = 1.02, 3 * time.Second
	// leastCut is a share of packets that is not worth dropping.
	leastCut = 0.001
)

// Budget follows what an overloaded mux can do. The zero value knows of no bound.
type Budget struct {
	most Rate      // that it can send on while it drops nothing; zero: no bound
	room Rate      // that is left of it, beside the dropping
	seen float64   // share of what comes that the program saw at the last look
	lost time.Time // when packets were lost last
	at   time.Time
	fits time.Time // since when all that comes fits; zero: it does not
}

// Bound says whether there is a bound.
func (b *Budget) Bound() bool { return b.most != (Rate{}) }

// Observe takes what the mux did in the last while, all that it saw come for VIPs, and the share of packets
// that was lost before it saw them; 0: none that counts.
func (b *Budget) Observe(at time.Time, done, seen Rate, lost float64) {
	passed := at.Sub(b.at).Seconds()
	b.at = at
	switch {
	case lost > 0:
		b.most = Rate{work(done.Packets, seen.Packets), work(done.Bytes, seen.Bytes)}.times(1 - min(budgetMargin, 2*lost))
		b.lost = at
	case b.Bound() && at.Sub(b.lost) >= budgetHold:
		b.most = b.most.times(math.Pow(budgetGrowth, passed))
	}
	if !b.Bound() {
		return
	}
	b.seen = 1 - min(lost, 0.99)
	offered := seen.times(1 / b.seen)
	b.room = Rate{capacity(b.most.Packets, offered.Packets), capacity(b.most.Bytes, offered.Bytes)}
	if offered.Packets > b.most.Packets || offered.Bytes > b.most.Bytes {
		b.fits = time.Time{}
		return
	}
	if b.fits.IsZero() {
		b.fits = at
	}
	if at.Sub(b.fits) >= Calm {
		*b = Budget{}
	}
}

// work is what a mux did that has sent on so much of what it saw, and dropped the rest.
func work(done, seen float64) float64 { return done + dropCost*max(seen-done, 0) }

// capacity is how much can be forwarded if forwarding it and dropping the rest of what is offered costs no more than
// most.
func capacity(most, offered float64) float64 {
	if offered <= most {
		return math.Inf(1)
	}
	return max((most-dropCost*offered)/(1-dropCost), most*budgetFloor)
}

func (r Rate) times(f float64) Rate { return Rate{r.Packets * f, r.Bytes * f} }

// Cuts are what VIPs lose so that all together have no more than the budget: of packets, and of bytes, each
// tenant gets by its workloads, and in it each VIP by its own, until it has what it wants (max-min fairness).
// tenants are their workloads. Who loses nothing is left out.
func (b *Budget) Cuts(demands []Demand, tenants map[string]int) map[netip.Addr]Cut {
	if !b.Bound() {
		return nil
	}
	cuts := map[netip.Addr]Cut{}
	packets := shareCapacity(demands, tenants, b.room.Packets, func(a Demand) float64 { return a.Offered.Packets / b.seen })
	bytes := shareCapacity(demands, tenants, b.room.Bytes, func(a Demand) float64 { return a.Offered.Bytes / b.seen })
	for i, a := range demands {
		keep := min(packets[i].share, bytes[i].share)
		if 1-keep < leastCut {
			continue
		}
		cut := a.cut(keep)
		cut.TenantShare = packets[i].part
		cuts[a.VIP] = cut
	}
	return cuts
}

// keeps is what a demand keeps of what it is offered, and its tenant's part of all weights.
type keeps struct{ share, part float64 }

// shareCapacity shares room among the demands' tenants, then each tenant's among its demands.
func shareCapacity(demands []Demand, tenants map[string]int, room float64, of func(Demand) float64) []keeps {
	claims, those, index, weights := []fairshare.Claim[float64]{}, [][]int{}, map[string]int{}, 0.0
	for i, a := range demands {
		name, weight := a.tenant(), float64(max(tenants[a.Tenant], a.Workloads, 1))
		if _, there := index[name]; !there {
			index[name] = len(claims)
			claims, those = append(claims, fairshare.Claim[float64]{Weight: weight}), append(those, nil)
			weights += weight
		}
		tenant := index[name]
		claims[tenant].Want += of(a)
		those[tenant] = append(those[tenant], i)
	}
	all := make([]keeps, len(demands))
	each, _ := fairshare.Divide(room, claims)
	for tenant, its := range those {
		inner := make([]fairshare.Claim[float64], len(its))
		for i, j := range its {
			inner[i] = fairshare.Claim[float64]{Weight: float64(max(demands[j].Workloads, 1)), Want: of(demands[j])}
		}
		gets, _ := fairshare.Divide(each[tenant], inner)
		for i, j := range its {
			all[j] = keeps{share: 1, part: claims[tenant].Weight / weights}
			if want := inner[i].Want; want > 0 {
				all[j].share = gets[i] / want
			}
		}
	}
	return all
}

func (a Demand) tenant() string {
	if a.Tenant == "" {
		return a.VIP.String() // no tenant's name is an address
	}
	return a.Tenant
}

// cut has the demand keep a share of its packets: each prefix of sources gets the same, until it has what it
// wants. Those that are not known by name count as being as large as they may be.
func (a Demand) cut(keep float64) Cut {
	cut := Cut{All: 1 - keep, Others: 1 - keep}
	if len(a.Sources) == 0 {
		return cut
	}
	claims, rest := make([]fairshare.Claim[float64], 0, len(a.Sources)+1), 1.0
	for _, s := range a.Sources {
		claims = append(claims, fairshare.Claim[float64]{Weight: 1, Want: s.Share})
		rest -= s.Share
	}
	others := fairshare.Claim[float64]{Weight: max(rest/a.Unnamed, 1), Want: max(rest, 0)}
	gets, _ := fairshare.Divide(keep, append(claims, others))
	cut.Sources = make(map[netip.Prefix]float64, len(a.Sources))
	for i, s := range a.Sources {
		cut.Sources[s.Prefix] = 1 - gets[i]/s.Share
	}
	if cut.Others = 0; others.Want > 0 {
		cut.Others = 1 - gets[len(a.Sources)]/others.Want
	}
	return cut
}
