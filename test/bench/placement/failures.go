package main

import (
	"context"
	"math/rand/v2"

	"github.com/weirlb/weir/internal/plan"
)

// failureReport is Figure 19: the hottest link at 10 Tbit/s, as parts of its bandwidth.
type failureReport struct {
	Failures []failure `json:"failures"`
}

// failure is one failure under one scheme.
type failure struct {
	draw
	Scheme   string  `json:"scheme"`
	Kind     string  `json:"kind"` // a container, or three switches
	Number   int     `json:"number"`
	Before   float64 `json:"before"`
	After    float64 `json:"after"`
	More     float64 `json:"more"`
	Software int64   `json:"software"` // kbit/s on software muxes meanwhile
}

// Kinds of failures, and how often each is drawn, as in the paper.
const (
	container     = "container"
	threeSwitches = "three switches"
	failureDraws  = 10
)

func (b *bench) failures(ctx context.Context) (any, error) {
	draws, err := b.draws()
	if err != nil {
		return nil, err
	}
	found, err := compute(ctx, b, "failures", namesOf(draws), func(ctx context.Context, i int) ([]failure, error) {
		return b.failuresOf(ctx, draws[i])
	})
	if err != nil {
		return nil, err
	}
	var report failureReport
	for _, f := range found {
		report.Failures = append(report.Failures, f...)
	}
	return report, b.plotFailures(found[0])
}

func (b *bench) failuresOf(ctx context.Context, of draw) (all []failure, err error) {
	demands, err := b.of(of, totals[len(totals)-1]).Generate()
	if err != nil {
		return nil, err
	}
	for _, s := range plan.Schemes(of.Seed) {
		if s.Name != "greedy" && s.Name != "weir" {
			continue
		}
		c, err := plan.CountMuxes(ctx, b.network, demands, s, muxRate2014)
		if err != nil {
			return nil, err
		}
		n := plan.Network{
			Fabric: b.network, Demands: demands, Placed: c.Placement.Placed, MuxRacks: plan.MuxRacks(b.network, c.Muxes),
		}
		before, err := n.Fail()
		if err != nil {
			return nil, err
		}
		for i, dead := range b.drawFailures(of.Seed) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			after, err := n.Fail(dead...)
			if err != nil {
				return nil, err
			}
			f := failure{
				draw: of, Scheme: s.Name, Kind: container, Number: i % failureDraws, Before: before.Utilisation,
				After: after.Utilisation, More: after.Utilisation - before.Utilisation, Software: int64(after.Software),
			}
			if i >= failureDraws {
				f.Kind = threeSwitches
			}
			all = append(all, f)
		}
	}
	return all, nil
}

// drawFailures draws containers, then sets of three switches.
func (b *bench) drawFailures(seed uint64) (all [][]int32) {
	random := rand.New(rand.NewPCG(seed, 0x6661696c))
	containers := plan.Containers(b.network)
	for range failureDraws {
		all = append(all, containers[random.IntN(len(containers))])
	}
	for range failureDraws {
		var dead []int32
		for range 3 {
			dead = append(dead, int32(random.IntN(len(b.network.Switches))))
		}
		all = append(all, dead)
	}
	return all
}

func (b *bench) plotFailures(found []failure) error {
	var runs []plan.FailureRun
	for _, f := range found {
		name := f.Scheme + ", " + f.Kind
		if n := len(runs); n == 0 || runs[n-1].Scheme != name {
			runs = append(runs, plan.FailureRun{Scheme: name, Before: f.Before})
		}
		last := &runs[len(runs)-1]
		last.After = append(last.After, f.After)
	}
	return b.plot("duet-19.svg", plan.FailureChart(runs))
}
