package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/placement"
	"github.com/weirlb/weir/internal/traffic"
)

// small is a placement on a small fabric with more traffic than it carries, beside what linear programs say is possible.
type small struct {
	Draw     int     `json:"draw"`
	Hardware float64 `json:"hardware"`    // part of the traffic that Weir has on switches
	Most     float64 `json:"most"`        // part that VIPs have there at most, if they could be cut
	ToMost   float64 `json:"weir_to_lp"`  // one to the other
	Software float64 `json:"software"`    // traffic in software at least, a failure included, by the linear program
	Bound    float64 `json:"bound"`       // the same by the planner's bound
	ToLeast  float64 `json:"bound_to_lp"` // one to the other
}

// smallDraws is how many fabrics are drawn.
const smallDraws = 50

// program is a linear program, as tools/highs/maximise.py takes it.
type program struct {
	Rows    []float64 `json:"rows"` // upper bounds
	Columns []column  `json:"columns"`
}

// column is a variable of a program.
type column struct {
	Objective float64   `json:"objective"`
	Upper     *float64  `json:"upper"` // nil: none
	Index     []int32   `json:"index"` // rows where it stands
	Value     []float64 `json:"value"`
}

func (c *column) add(row int, value float64) {
	c.Index, c.Value = append(c.Index, int32(row)), append(c.Value, value)
}

func (b *bench) small(ctx context.Context) (any, error) {
	var report smallReport
	var err error
	if report.Small, err = b.smallFabrics(ctx, "overloaded", overloaded); err != nil {
		return nil, err
	}
	report.Lighter, err = b.smallFabrics(ctx, "lighter", lighter)
	return report, err
}

// smallReport is of small fabrics: those that the bound is for, and those whose racks carry all traffic.
type smallReport struct {
	Small   []small `json:"small"`
	Lighter []small `json:"small_lighter"`
}

// smallFabrics draws small fabrics with traffic, and compares placements with the optima of linear programs.
func (b *bench) smallFabrics(ctx context.Context, name string, of family) ([]small, error) {
	if _, err := maximise(ctx, nil); err != nil { // installs the solver once
		return nil, err
	}
	var names []string
	for i := range smallDraws {
		names = append(names, fmt.Sprint(name, " ", i))
	}
	return compute(ctx, b, "small", names, func(ctx context.Context, i int) (small, error) { return smallFabric(ctx, of, i) })
}

func smallFabric(ctx context.Context, of family, i int) (small, error) {
	f, demands, err := of.draw(i)
	if err != nil {
		return small{}, err
	}
	result, err := placement.Place(ctx, f, demands, nil, placement.Policy{Spread: placement.Twins})
	if err != nil {
		return small{}, err
	}
	most, err := relaxation(f, demands, placement.Twins, false)
	if err != nil {
		return small{}, err
	}
	least, err := relaxation(f, demands, placement.Anycast, true) // sets across containers escape the bound
	if err != nil {
		return small{}, err
	}
	optima, err := maximise(ctx, []program{most, least})
	if err != nil {
		return small{}, err
	}
	total := float64(result.Total)
	s := small{
		Draw: i, Hardware: float64(result.Hardware) / total, Most: optima[0], Software: 1 - optima[1],
		Bound: float64(placement.LeastSoftware(f, demands, placement.Anycast)) / total,
	}
	s.ToMost = s.Hardware / s.Most
	if s.Bound > 0 {
		s.ToLeast = s.Bound / s.Software
	}
	return s, nil
}

// family is small fabrics of four containers with six ToRs, two aggregation switches and four cores, and tables of 14
// to 18 tunnels.
type family struct {
	aggUplink    traffic.Rate
	vips, moreBy int // VIPs of the first draws, and how many more each five draws have
	total, step  traffic.Rate
}

// overloaded have the links of the paper's network, and from half to all of the traffic that their racks carry together.
// It is not even: racks, links and tables are short, each for some VIPs.
var overloaded = family{aggUplink: 40_000_000, vips: 80, moreBy: 10, total: 200_000_000, step: 67_000_000}

// lighter have racks that carry what they send and receive. What binds is where VIPs are announced.
var lighter = family{aggUplink: 20_000_000, vips: 100, moreBy: 5, total: 60_000_000, step: 10_000_000}

func (of family) draw(i int) (*fabric.Fabric, []traffic.Demand, error) {
	spec, err := fabric.Clos{
		Containers: 4, TorsPerContainer: 6, AggsPerContainer: 2, Cores: 4, TorUplink: 10_000_000, AggUplink: of.aggUplink,
		Limits: &fabric.Limits{Hosts: 16_384, ECMP: 4096, Tunnels: int32(14 + i%5)},
	}.Spec()
	if err != nil {
		return nil, nil, err
	}
	f, err := fabric.New(spec)
	if err != nil {
		return nil, nil, err
	}
	demands, err := traffic.Workload{
		VIPs: of.vips + of.moreBy*(i/5%5), Racks: len(f.Racks), Total: of.total + of.step*traffic.Rate(i%4), Seed: uint64(i) + 1,
	}.Generate()
	return f, demands, err
}

// relaxation is the program of a placement in which a VIP may be cut into parts with places of their own. Its maximum
// is the part of the traffic on switches, or, with failure, that part less what the worst container's failure costs.
func relaxation(f *fabric.Fabric, demands []traffic.Demand, spread placement.Spread, failure bool) (program, error) {
	var p program
	row := func(upper float64) int {
		p.Rows = append(p.Rows, upper)
		return len(p.Rows) - 1
	}
	hosts, total := row(float64(f.Switches[0].Hosts())), 0.0
	for _, d := range demands {
		row(1)
		total += float64(d.Rate())
	}
	links := len(p.Rows)
	for i := range f.Links {
		row(float64(f.Capacity(int32(i))) / float64(fabric.LoadOf(1)))
	}
	tables := len(p.Rows)
	containers := int32(0)
	for _, s := range f.Switches {
		row(float64(min(s.Tunnels(), s.ECMP())))
		containers = max(containers, s.Container+1)
	}
	fails := len(p.Rows)
	if failure {
		worst := column{Objective: -1}
		for range containers {
			worst.add(row(0), -1)
		}
		p.Columns = append(p.Columns, worst)
	}
	router, loads := fabric.NewRouter(f), f.NewLoads()
	for _, set := range placement.Candidates(f, spread) {
		routes := router.Routes(set)
		for v, d := range demands {
			flow, err := f.NewFlow(d)
			if err != nil {
				return program{}, err
			}
			c := column{Objective: float64(d.Rate()) / total}
			c.add(hosts, 1)
			c.add(1+v, 1)
			loads.Clear()
			loads.Add(flow, routes)
			for _, link := range loads.Touched {
				c.add(links+int(link), float64(loads.ByLink[link])/float64(fabric.LoadOf(1)))
			}
			n := int64(len(set))
			for _, sw := range set {
				c.add(tables+int(sw), float64((flow.Backends+n-1)/n))
			}
			if k := containerOf(f, set); failure && k >= 0 {
				c.add(fails+int(k), c.Objective)
			}
			p.Columns = append(p.Columns, c)
		}
	}
	return p, nil
}

// containerOf is the container that holds all switches of a set, -1 for none.
func containerOf(f *fabric.Fabric, set []int32) int32 {
	k := f.Switches[set[0]].Container
	for _, sw := range set {
		if f.Switches[sw].Container != k {
			return -1
		}
	}
	return k
}

// maximise returns the optimum of each program.
func maximise(ctx context.Context, programs []program) (optima []float64, err error) {
	var input bytes.Buffer
	encoder := json.NewEncoder(&input)
	for _, p := range programs {
		if err := encoder.Encode(p); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, "scripts/highs.sh")
	cmd.Stdin, cmd.Stderr = &input, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("maximise %d linear programs: %w", len(programs), err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		optimum, err := strconv.ParseFloat(strings.TrimSpace(lines.Text()), 64)
		if err != nil {
			return nil, fmt.Errorf("read an optimum: %w", err)
		}
		optima = append(optima, optimum)
	}
	if len(optima) != len(programs) {
		return nil, fmt.Errorf("maximise %d linear programs: %d optima are there", len(programs), len(optima))
	}
	return optima, nil
}
