package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/placement"
	"github.com/weirlb/weir/internal/plan"
	"github.com/weirlb/weir/internal/testkit/ecmp"
	"github.com/weirlb/weir/internal/traffic"
)

// costReport is what a placement costs, and how exact the fast evaluation of links is.
type costReport struct {
	Placement  oneReport    `json:"placement"`
	Evaluation []evaluation `json:"evaluation"`
}

// oneReport is of a process that places the VIPs once, on one core.
type oneReport struct {
	VIPs     int     `json:"vips"`
	Switches int     `json:"switches"`
	Seconds  float64 `json:"seconds"` // CPU time of the placement
	MiB      float64 `json:"mib"`     // largest resident set of the process, with the traffic that it generates
	Coverage float64 `json:"coverage"`
	Hosts    float64 `json:"host_table"` // part of the traffic that is left for want of host routes
	Others   float64 `json:"others"`     // that is left for any other reason
}

// site is a network and its traffic.
type site struct {
	clos  fabric.Clos
	vips  int // 0: as in the paper
	total traffic.Rate
}

// sites are what processes of their own place, by the name of the part.
var sites = map[string]site{
	"one": {clos: fabric.PaperClos, total: totals[len(totals)-1]},
	"one-large": {
		clos: fabric.Clos{
			Containers: 250, TorsPerContainer: 40, AggsPerContainer: 4, Cores: 160, TorUplink: 40_000_000, AggUplink: 100_000_000,
		},
		vips: 100_000, total: 100_000_000_000,
	},
}

// one places the VIPs of a site once, from the construction of the network's paths on.
func (s site) one(ctx context.Context, vips int) (any, error) {
	spec, err := s.clos.Spec()
	if err != nil {
		return nil, err
	}
	network, err := fabric.New(spec)
	if err != nil {
		return nil, err
	}
	if vips == 0 {
		vips = s.vips
	}
	demands, err := traffic.Workload{VIPs: vips, Racks: len(network.Racks), Total: s.total, Seed: 1}.Generate()
	if err != nil {
		return nil, err
	}
	schemes := plan.Schemes(1)
	policy := schemes[len(schemes)-1].Policy
	policy.FailureBudget = placement.UsualBudget(network, demands, policy.Spread)
	began, err := cpuTime()
	if err != nil {
		return nil, err
	}
	result, err := placement.Place(ctx, network, demands, nil, policy)
	if err != nil {
		return nil, err
	}
	ended, err := cpuTime()
	if err != nil {
		return nil, err
	}
	report := oneReport{
		VIPs: len(demands), Switches: len(network.Switches), Seconds: (ended - began).Seconds(),
		Coverage: float64(result.Hardware) / float64(result.Total),
	}
	for _, u := range result.Unplaced {
		if part := float64(u.Rate) / float64(result.Total); u.Resource == placement.HostTable {
			report.Hosts += part
		} else {
			report.Others += part
		}
	}
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return nil, err
	}
	report.MiB = float64(usage.Maxrss) / 1024
	return report, nil
}

// cpuTime is what this process has used so far.
func cpuTime() (time.Duration, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now)
	return time.Duration(now.Nano()), err
}

// cost runs a process for one placement, then compares loads with the oracle's.
func (b *bench) cost(ctx context.Context) (any, error) {
	var report costReport
	if err := b.apart(ctx, "one", &report.Placement); err != nil {
		return nil, err
	}
	for _, odd := range oddFabrics() {
		e, err := odd.evaluate(ctx)
		if err != nil {
			return nil, err
		}
		report.Evaluation = append(report.Evaluation, e)
	}
	return report, nil
}

// scale runs a process for one placement on a network that is larger than the paper's.
func (b *bench) scale(ctx context.Context) (any, error) {
	var report oneReport
	err := b.apart(ctx, "one-large", &report)
	return report, err
}

// apart computes a part in a process of its own with one core.
func (b *bench) apart(ctx context.Context, part string, report any) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	out := b.out + "." + part
	defer os.Remove(out)
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "-only", part, "-out", out, "-vips", fmt.Sprint(b.vips))
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("place in a process of its own: %w", err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, report)
}

// evaluation is how far loads are from the oracle's, as a part of the bandwidth. Loads are rounded up: below is a fault.
type evaluation struct {
	Fabric string  `json:"fabric"`
	Loads  int     `json:"loads"` // compared
	Error  float64 `json:"error"` // the largest; negative: some load is below the oracle's
}

// oddFabric is a fabric that no parameters describe.
type oddFabric struct {
	name string
	spec func() (fabric.Spec, error)
}

func oddFabrics() []oddFabric {
	clos := func(c fabric.Clos, change func(*fabric.Spec)) func() (fabric.Spec, error) {
		return func() (fabric.Spec, error) {
			spec, err := c.Spec()
			if err == nil {
				change(&spec)
			}
			return spec, err
		}
	}
	regular := fabric.Clos{
		Containers: 5, TorsPerContainer: 4, AggsPerContainer: 3, Cores: 9, TorUplink: 10_000_000, AggUplink: 40_000_000,
	}
	twoTiers := fabric.Clos{Containers: 3, TorsPerContainer: 4, Cores: 5, TorUplink: 10_000_000}
	return []oddFabric{
		{"unequal planes", clos(regular, func(s *fabric.Spec) { // of 3, 2 and 1 cores
			for i := range s.Switches {
				name := s.Switches[i].Name
				s.Switches[i].Down = name == "core-6" || name == "core-8" || name == "core-9"
			}
		})},
		{"dead links", clos(regular, func(s *fabric.Spec) {
			for i := range s.Links {
				s.Links[i].Down = i%11 == 3
			}
		})},
		{"two tiers", clos(twoTiers, func(s *fabric.Spec) { s.Links[2].Down = true })},
	}
}

// evaluationDraws is how many VIPs are put on each odd fabric.
const evaluationDraws = 60

func (o oddFabric) evaluate(ctx context.Context) (evaluation, error) {
	spec, err := o.spec()
	if err != nil {
		return evaluation{}, err
	}
	f, err := fabric.New(spec)
	if err != nil {
		return evaluation{}, fmt.Errorf("%s: %w", o.name, err)
	}
	demands, err := traffic.Workload{VIPs: evaluationDraws, Racks: len(f.Racks), Total: 100_000_000}.Generate()
	if err != nil {
		return evaluation{}, err
	}
	random := rand.New(rand.NewPCG(1, 0x6f6464))
	sets := placement.Candidates(f, placement.Twins)
	graph, links := graphOf(f)
	router, fast, exact := fabric.NewRouter(f), f.NewLoads(), ecmp.NewLoads(graph)
	e := evaluation{Fabric: o.name}
	for _, d := range demands {
		if err := ctx.Err(); err != nil {
			return e, err
		}
		set := sets[random.IntN(len(sets))]
		flow, err := f.NewFlow(d)
		if err != nil {
			return e, err
		}
		fast.Add(flow, router.Routes(set))
		exact.Add(demandOf(f, d), set)
		for i, want := range exact.ByLink {
			got := big.NewRat(int64(fast.ByLink[links[i]]), int64(fabric.LoadOf(1)))
			diff, _ := got.Sub(got, want).Float64()
			diff /= float64(f.Links[links[i]].Rate)
			e.Loads++
			if diff < 0 && (e.Error >= 0 || diff < e.Error) || e.Error >= 0 && diff > e.Error {
				e.Error = diff
			}
		}
	}
	if math.IsNaN(e.Error) {
		return e, fmt.Errorf("%s: a load is no number", o.name)
	}
	return e, nil
}

// graphOf is the fabric as the oracle has it, and the number in the fabric of each of its links.
func graphOf(f *fabric.Fabric) (g ecmp.Graph, links []int32) {
	g = ecmp.Graph{Switches: len(f.Switches), External: f.External}
	for i, l := range f.Links {
		if !l.Down {
			g.Links, links = append(g.Links, ecmp.Link{From: l.From, To: l.To}), append(links, int32(i))
		}
	}
	return g, links
}

func demandOf(f *fabric.Fabric, d traffic.Demand) ecmp.Demand {
	of := ecmp.Demand{External: int64(d.External), Sources: map[int32]int64{}, Backends: map[int32]int64{}}
	for _, s := range d.Sources {
		of.Sources[f.RackSwitch(s.Rack)] += int64(s.Rate)
	}
	for _, g := range d.Backends {
		of.Backends[f.RackSwitch(g.Rack)] += int64(g.Backends)
	}
	return of
}
