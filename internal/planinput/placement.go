package planinput

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/placement"
	"github.com/weirlb/weir/internal/plan"
	"github.com/weirlb/weir/internal/traffic"
)

// Placement is flags that say how VIPs are placed.
type Placement struct {
	spread    spread
	algorithm algorithm
	budget    budget
	exclude   []string
	rulesFile string
	mux       bits
}

// Flags adds the flags to cmd.
func (p *Placement) Flags(cmd *cobra.Command) {
	p.spread, p.mux = spread(placement.Twins), bits(plan.Measured().MuxRate)
	flags := cmd.Flags()
	flags.Var(&p.spread, "spread", "which switches may announce a VIP at once: one, anycast (cores of all planes, or all "+
		"aggregation switches of a container), twins (of two containers, too)")
	flags.Var(&p.algorithm, "algorithm", "repair, or one of the paper's: greedy, random, sticky, keep")
	flags.Var(&p.budget, "failure-budget", "most of all traffic that the failure of a container may send to software muxes, "+
		"in `percent`; of three switches as much; 0: no bound; without it, 0.5 with twins, else what the traffic needs")
	flags.StringSliceVar(&p.exclude, "exclude", nil, "`switches` that take no VIP")
	flags.StringVar(&p.rulesFile, "rules", "", "`file` of VIPs that never, or by all means, go to switches, or to given ones")
	flags.Var(&p.mux, "mux", "what a software mux carries, in bit/s with a unit")
	cmd.MarkFlagFilename("rules") //nolint:errcheck // the flag stands above
}

// MuxRate is what a software mux carries.
func (p *Placement) MuxRate() traffic.Rate { return traffic.Rate(p.mux) }

// Policy reads the file of rules and returns the policy, without a failure budget.
func (p *Placement) Policy() (placement.Policy, Rules, error) {
	policy := placement.Policy{
		Algorithm: placement.Algorithm(p.algorithm), Spread: placement.Spread(p.spread), Exclude: p.exclude, Delta: plan.StickyDelta,
	}
	if p.rulesFile == "" {
		return policy, Rules{}, nil
	}
	rules, err := readRulesFile(p.rulesFile)
	policy.VIPs = rules.VIPs
	return policy, rules, err
}

// SetBudget sets the failure budget of a policy: the flag's, or the usual one for the traffic. The paper's algorithms
// have none by themselves.
func (p *Placement) SetBudget(policy *placement.Policy, f *fabric.Fabric, i traffic.Interval) {
	switch {
	case p.budget.set:
		policy.FailureBudget = p.budget.millionths
	case policy.Algorithm == placement.Repair:
		policy.FailureBudget = placement.UsualBudget(f, i.Demands, policy.Spread)
	}
}

// spread is a placement.Spread as a pflag.Value.
type spread placement.Spread

// Type is what help calls the value.
func (s *spread) Type() string { return "spread" }

func (s *spread) String() string { return placement.Spread(*s).String() }

// Set reads the flag.
func (s *spread) Set(text string) error {
	all := []placement.Spread{placement.One, placement.Anycast, placement.Twins}
	i := slices.IndexFunc(all, func(x placement.Spread) bool { return x.String() == text })
	if i < 0 {
		return errors.New("must be one of one, anycast, twins")
	}
	*s = spread(all[i])
	return nil
}

// algorithm is a placement.Algorithm as a pflag.Value.
type algorithm placement.Algorithm

// Type is what help calls the value.
func (a *algorithm) Type() string { return "algorithm" }

func (a *algorithm) String() string { return placement.Algorithm(*a).String() }

// Set reads the flag.
func (a *algorithm) Set(text string) error {
	for _, x := range []placement.Algorithm{
		placement.Repair, placement.Greedy, placement.Random, placement.Sticky, placement.Keep,
	} {
		if x.String() == text {
			*a = algorithm(x)
			return nil
		}
	}
	return errors.New("must be one of repair, greedy, random, sticky, keep")
}

// budget is a part of all traffic in percent. It is a pflag.Value.
type budget struct {
	millionths int64
	set        bool
}

// Type is what help calls the value.
func (b *budget) Type() string { return "percent" }

func (b *budget) String() string {
	if !b.set {
		return ""
	}
	return strconv.FormatFloat(float64(b.millionths)/1e4, 'f', -1, 64)
}

// Set reads the flag.
func (b *budget) Set(text string) error {
	value, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !(value >= 0 && value <= 100) {
		return errors.New("must be a number of percent from 0 to 100")
	}
	b.millionths, b.set = int64(math.Round(value*1e4)), true
	if value > 0 && b.millionths == 0 {
		return fmt.Errorf("must be 0 or at least 0.0001")
	}
	return nil
}
