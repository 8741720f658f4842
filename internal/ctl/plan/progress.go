package plan

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/ctl/manifestfile"
	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/manifest"
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
		return manifestfile.ReadAnyKind(cmd, []string{file})
	})
}

// chosenInterval is which interval of a trace is planned for.
type chosenInterval struct{ number int }

func (c *chosenInterval) flags(cmd *cobra.Command) {
	cmd.Flags().IntVar(&c.number, "interval", -1, "`number` of the interval to plan for; without it, the one with most traffic")
}

// read reads the traffic up to the end and keeps one interval.
func (c *chosenInterval) read(
	ctx context.Context, input *planinput.Input, f *fabric.Fabric, progress func(string),
) (chosen traffic.Interval, err error) {
	found := false
	err = input.EachInterval(ctx, f, func(i traffic.Interval) error {
		progress(fmt.Sprintf("interval %d: %d VIPs", i.Number, len(i.Demands)))
		if c.number == i.Number || c.number < 0 && (!found || i.Rate() > chosen.Rate()) {
			chosen, found = i, true
		}
		return nil
	})
	if err == nil && !found {
		return chosen, fmt.Errorf("the traffic has no interval %d", max(0, c.number))
	}
	return chosen, err
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
