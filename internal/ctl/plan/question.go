package plan

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/ctl/manifestfile"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/manifest"
	"github.com/weirlb/weir/internal/placement"
	"github.com/weirlb/weir/internal/planinput"
	"github.com/weirlb/weir/internal/traffic"
)

// progressTime is how long work is silent, at first and between two lines.
const progressTime = 2 * time.Second

// progress writes on standard error what long work is about.
func progress(cmd *cobra.Command) func(string) {
	last := time.Now()
	return func(at string) {
		if time.Since(last) >= progressTime {
			last = time.Now()
			fmt.Fprintln(cmd.ErrOrStderr(), at)
		}
	}
}

// readFabric reads the network that the flags name.
func readFabric(cmd *cobra.Command, input *planinput.Input) (*fabric.Fabric, error) {
	return input.Fabric(func(file string) ([]manifest.Resource, error) {
		return manifestfile.Read(cmd, []string{file})
	})
}

// question is flags that ask for the placement of one interval, and what they name once it is read.
type question struct {
	input  planinput.Input
	place  planinput.Placement
	number int

	network  *fabric.Fabric
	interval traffic.Interval
	policy   placement.Policy
}

// mostTraffic is the number that asks for the interval with most traffic.
const mostTraffic = -1

func (q *question) flags(cmd *cobra.Command) {
	q.input.Flags(cmd)
	q.place.Flags(cmd)
	cmd.Flags().IntVar(&q.number, "interval", mostTraffic, "`number` of the interval to plan for; without it, the one with most traffic")
}

// read checks the flags and reads what they name.
func (q *question) read(cmd *cobra.Command, tell func(string)) (err error) {
	if err := q.input.Check(cmd); err != nil {
		return session.NewUsageError(cmd, err)
	}
	var rules planinput.Rules
	if q.policy, rules, err = q.place.Policy(); err != nil {
		return err
	}
	if q.network, err = readFabric(cmd, &q.input); err != nil {
		return err
	}
	if err := q.choose(cmd.Context(), tell); err != nil {
		return err
	}
	warnUnused(cmd.ErrOrStderr(), rules, q.interval)
	q.place.SetBudget(&q.policy, q.network, q.interval)
	return nil
}

// choose reads the traffic up to the end and keeps one interval.
func (q *question) choose(ctx context.Context, tell func(string)) error {
	found := false
	err := q.input.EachInterval(ctx, q.network, func(i traffic.Interval) error {
		tell(fmt.Sprintf("interval %d: %d VIPs", i.Number, len(i.Demands)))
		if q.number == i.Number || q.number == mostTraffic && (!found || i.Rate() > q.interval.Rate()) {
			q.interval, found = i, true
		}
		return nil
	})
	if err == nil && !found {
		return fmt.Errorf("the traffic has no interval %d", q.number)
	}
	return err
}

// warnUnused says on standard error which rule no VIP of an interval has.
func warnUnused(to io.Writer, rules planinput.Rules, i traffic.Interval) {
	seen := make(map[string]bool, len(i.Demands))
	for _, d := range i.Demands {
		seen[d.VIP] = true
	}
	if vip, line := rules.Unused(seen); line > 0 {
		fmt.Fprintf(to, "rules: line %d: interval %d has no vip %q\n", line, i.Number, vip)
	}
}
