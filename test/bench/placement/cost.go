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
	VIPs    int     `json:"vips"`
	Seconds float64 `json:"seconds"`
	MiB     float64 `json:"mib"` // largest resident set of the process, with the traffic that it generates
}

// one places the VIPs of 10 Tbit/s once.
func (b *bench) one(ctx context.Context) (any, error) {
	demands, err := b.of(draw{Seed: 1, Skew: 2.5}, totals[len(totals)-1]).Generate()
	if err != nil {
		return nil, err
	}
	schemes := plan.Schemes(1)
	began := time.Now()
	policy := schemes[len(schemes)-1].Policy
	policy.FailureBudget = placement.UsualBudget(b.network, demands, policy.Spread)
	if _, err := placement.Place(ctx, b.network, demands, nil, policy); err != nil {
		return nil, err
	}
	report := oneReport{VIPs: len(demands), Seconds: time.Since(began).Seconds()}
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return nil, err
	}
	report.MiB = float64(usage.Maxrss) / 1024
	return report, nil
}

// cost runs a process for one placement, then compares loads with the oracle's.
func (b *bench) cost(ctx context.Context) (any, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	out := b.out + ".one"
	defer os.Remove(out)
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-only", "one", "-out", out, "-vips", fmt.Sprint(b.vips))
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("place in a process of its own: %w", err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	var report costReport
	if err := json.Unmarshal(data, &report.Placement); err != nil {
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
