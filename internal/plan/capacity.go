package plan

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/placement"
	"github.com/weirlb/weir/internal/traffic"
)

// Capacity is what VIPs need of switches and software muxes.
type Capacity struct {
	Interval int          `json:"interval"`
	VIPs     int          `json:"vips"`
	Placed   int          `json:"placed"` // VIPs on switches
	Rate     traffic.Rate `json:"kbitPerS"`
	Hardware traffic.Rate `json:"hardwareKbitPerS"` // on switches
	Budget   float64      `json:"failureBudget"`    // part of all traffic; 0: none
	Software traffic.Rate `json:"softwareKbitPerS"` // that muxes carry once the worst container or three switches fail
	Least    traffic.Rate `json:"leastSoftwareKbitPerS"`

	Muxes    []MuxNeed           `json:"muxes"`
	Unplaced []UnplacedSum       `json:"unplaced"`
	Links    []placement.HotLink `json:"hottestLinks"`
	Failures []Failure           `json:"failures"` // first of none
	Usage    []Line              `json:"-"`        // of links, in percent of their bandwidth, the most used first
}

// MuxNeed is the software muxes of a latency profile, with switches and without.
type MuxNeed struct {
	Profile string       `json:"profile"` // empty: of the capacity asked for
	MuxRate traffic.Rate `json:"muxKbitPerS"`
	Muxes   int64        `json:"muxes"`
	Least   int64        `json:"leastMuxes"`
	Without int64        `json:"muxesWithoutSwitches"`
}

// UnplacedSum is the VIPs that one kind of resource keeps from switches, or, with none, policy.
type UnplacedSum struct {
	Resource placement.Resource `json:"resource"`
	VIPs     int                `json:"vips"`
	Required int                `json:"required"` // of them are to go to switches by all means
	Rate     traffic.Rate       `json:"kbitPerS"`
	Example  string             `json:"example"` // the one with most traffic
	Reason   string             `json:"reason"`  // of it
}

// Failure is what a failure does.
type Failure struct {
	Kind string `json:"kind"` // none, container, switch or link
	Name string `json:"name"`
	Impact
	Muxes int64  `json:"muxes"`          // for what is on software muxes then
	Note  string `json:"note,omitempty"` // why nothing is left
}

// CapacityQuestion is what FindCapacity works on.
type CapacityQuestion struct {
	Fabric   *fabric.Fabric
	Interval traffic.Interval
	Policy   placement.Policy
	MuxRate  traffic.Rate
	Failures int             // containers, switches of each tier and links between tiers that carry most; negative: all
	Progress func(at string) // told what begins
}

// FindCapacity places the VIPs of an interval and computes what failures do.
func FindCapacity(ctx context.Context, q CapacityQuestion) (*Capacity, error) {
	q.Progress(fmt.Sprintf("place %d VIPs", len(q.Interval.Demands)))
	result, err := placement.Place(ctx, q.Fabric, q.Interval.Demands, nil, q.Policy)
	if err != nil {
		return nil, err
	}
	c := &Capacity{
		Interval: q.Interval.Number, VIPs: len(q.Interval.Demands), Placed: len(result.Placed), Rate: result.Total,
		Hardware: result.Hardware, Budget: float64(q.Policy.FailureBudget) / 1e6, Links: result.HotLinks,
		Software: result.Software(placement.FindFailures(q.Fabric, result.Placed, 0, 0)),
		Least:    placement.LeastSoftware(q.Fabric, q.Interval.Demands, q.Policy.Spread),
		Unplaced: sumUnplaced(result.Unplaced),
	}
	c.Muxes = c.muxNeeds(q.MuxRate)
	n := Network{
		Fabric: q.Fabric, Demands: q.Interval.Demands, Placed: result.Placed,
		MuxRacks: MuxRacks(q.Fabric, c.Muxes[0].Muxes),
	}
	return c, c.fail(ctx, q, n)
}

func (c *Capacity) muxNeeds(rate traffic.Rate) []MuxNeed {
	needs := []MuxNeed{{MuxRate: rate}}
	for _, p := range LatencyProfiles() {
		needs = append(needs, MuxNeed{Profile: p.Name, MuxRate: p.MuxRate})
	}
	for i := range needs {
		m := &needs[i]
		m.Muxes, m.Least = placement.Muxes(c.Software, m.MuxRate), placement.Muxes(c.Least, m.MuxRate)
		m.Without = placement.Muxes(c.Rate, m.MuxRate)
	}
	return needs
}

func sumUnplaced(unplaced []placement.Unplaced) []UnplacedSum {
	sums := []UnplacedSum{}
	most := map[placement.Resource]traffic.Rate{}
	for _, u := range unplaced {
		i := slices.IndexFunc(sums, func(s UnplacedSum) bool { return s.Resource == u.Resource })
		if i < 0 {
			i = len(sums)
			sums = append(sums, UnplacedSum{Resource: u.Resource})
			most[u.Resource] = -1
		}
		s := &sums[i]
		s.VIPs, s.Rate = s.VIPs+1, s.Rate+u.Rate
		if u.Required {
			s.Required++
		}
		if u.Rate > most[u.Resource] {
			most[u.Resource], s.Example, s.Reason = u.Rate, u.VIP, u.Reason
		}
	}
	slices.SortFunc(sums, func(a, b UnplacedSum) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Resource, b.Resource))
	})
	return sums
}

// fail computes the failures that are looked at.
func (c *Capacity) fail(ctx context.Context, q CapacityQuestion, n Network) error {
	q.Progress("add up the load of links")
	left, racks, err := q.Fabric.Without(nil, nil)
	if err != nil {
		return err
	}
	loads, impact, err := n.loads(left, racks)
	if err != nil {
		return err
	}
	c.Failures = []Failure{{Kind: "none", Impact: impact, Muxes: placement.Muxes(impact.Software, q.MuxRate)}}
	c.Usage = []Line{usageLine("every day", left, loads)}
	outages := findOutages(q.Fabric, loads, q.Failures)
	worst := 0.0
	for i, o := range outages {
		if err := ctx.Err(); err != nil {
			return err
		}
		q.Progress(fmt.Sprintf("failure %d of %d: %s %s", i+1, len(outages), o.kind, o.name))
		f := Failure{Kind: o.kind, Name: o.name}
		left, racks, err := q.Fabric.Without(o.switches, o.links)
		if err != nil { // no rack or no entrance is left
			f.Gone, f.Note = c.Rate, err.Error()
			c.Failures = append(c.Failures, f)
			continue
		}
		loads, impact, err := n.loads(left, racks)
		if err != nil {
			return err
		}
		f.Impact, f.Muxes = impact, placement.Muxes(impact.Software, q.MuxRate)
		c.Failures = append(c.Failures, f)
		if impact.Utilisation > worst {
			worst = impact.Utilisation
			c.Usage = append(c.Usage[:1], usageLine("without "+o.kind+" "+o.name, left, loads))
		}
	}
	return nil
}

// usageLine is how much of their bandwidth links use, by rank.
func usageLine(name string, f *fabric.Fabric, loads *fabric.Loads) Line {
	var used []float64
	for i, l := range f.Links {
		if !l.Down {
			used = append(used, 100*float64(loads.ByLink[i].Rate()+l.Background)/float64(l.Rate))
		}
	}
	slices.SortFunc(used, func(a, b float64) int { return cmp.Compare(b, a) })
	line := Line{Name: name}
	for at := 1; at <= len(used); at = max(at+1, at*21/20) {
		line.Points = append(line.Points, Point{X: float64(at), Y: used[at-1]})
	}
	return line
}

// UsageChart draws the usage of links.
func (c *Capacity) UsageChart() Chart {
	return Chart{
		Title: "bandwidth in use", Axis: "links, the most used first (logarithmic)", LogX: true, UnitY: " %", Series: c.Usage,
	}
}
