package plan

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/plan"
	"github.com/weirlb/weir/internal/planinput"
	"github.com/weirlb/weir/internal/traffic"
)

func simulateCommand(s *session.Session) *cobra.Command {
	var input planinput.Input
	var place planinput.Placement
	var plot string
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Take a placement of VIPs through a trace",
		Long: `Take a placement of VIPs through the intervals of a trace: each starts from the one before.
Say of each interval which part of the traffic is on switches, which part moves, and by
way of software muxes, and how many software muxes are needed; and of the whole the latency,
by the profile of 2014 and by that of today.`,
		Example: `  weir plan simulate --fabric east.yaml --trace week.csv
  weir plan simulate --traffic 6.6T --intervals 18 --algorithm sticky --plot sticky.svg`,
		Args: session.Arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := input.Check(cmd); err != nil {
				return session.NewUsageError(cmd, err)
			}
			report, err := planSimulation(cmd, &input, &place)
			if err != nil {
				return err
			}
			if plot != "" {
				if err := planinput.WriteText(plot, report.Chart().SVG()); err != nil {
					return err
				}
			}
			return s.Output.Print(cmd.OutOrStdout(), report, func(w io.Writer) error { return writeReport(w, report) })
		},
	}
	input.Flags(cmd)
	place.Flags(cmd)
	cmd.Flags().StringVar(&plot, "plot", "", "`file` to draw into, as SVG, which part of the traffic is on switches and which moves")
	s.Output.AddFlag(cmd)
	return cmd
}

func planSimulation(cmd *cobra.Command, input *planinput.Input, place *planinput.Placement) (*plan.Report, error) {
	policy, rules, err := place.Policy()
	if err != nil {
		return nil, err
	}
	network, err := readFabric(cmd, input)
	if err != nil {
		return nil, err
	}
	simulation := plan.Simulation{Fabric: network, Policy: policy, MuxRate: place.MuxRate()}
	tell := progress(cmd)
	var moments []plan.Moment
	err = input.EachInterval(cmd.Context(), network, func(i traffic.Interval) error {
		tell(fmt.Sprintf("interval %d: place %d VIPs", i.Number, len(i.Demands)))
		if len(moments) == 0 {
			warnUnused(cmd.ErrOrStderr(), rules, i)
			place.SetBudget(&simulation.Policy, network, i)
		}
		m, err := simulation.Next(cmd.Context(), i)
		if err != nil {
			return fmt.Errorf("interval %d: %w", i.Number, err)
		}
		moments = append(moments, m)
		return nil
	})
	if err != nil {
		return nil, err
	}
	report := plan.NewReport(moments)
	return &report, nil
}

func writeReport(w io.Writer, r *plan.Report) error {
	t := table.New("", "no interval", "INTERVAL", "BIT/S", "ON SWITCHES", "MOVED", "VIA SOFTWARE", "MUXES")
	for _, m := range r.Moments {
		t.Add(m.Interval, planinput.FormatBits(m.Rate), percent(ratio(m.Hardware, m.Rate)), percent(ratio(m.Moved, m.Rate)),
			percent(ratio(m.Transit, m.Rate)), m.Muxes)
	}
	if err := t.Write(w); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nOn switches:     %s, at least %s\n", percent(r.CoverageMean), percent(r.CoverageLeast))
	fmt.Fprintf(w, "Moved:           %s, at most %s, by way of software muxes %s\n",
		percent(r.MovedMean), percent(r.MovedMost), percent(r.TransitMost))
	fmt.Fprintf(w, "Software muxes:  %d\n\nLatency:\n", r.Muxes)
	l := table.New("  ", "", "PROFILE", "MUX", "MUXES", "SWITCH", "SOFTWARE", "P90", "P99", "ALL VIPS", "WITHOUT SWITCHES", "P50", "P99")
	for _, p := range r.Latencies {
		l.Add(p.Profile, planinput.FormatBits(p.MuxRate), p.Muxes, p.Switch, short(p.Software.P50), short(p.Software.P90),
			short(p.Software.P99), short(p.Median), fmt.Sprintf("%d muxes", p.Without), short(p.All.P50), short(p.All.P99))
	}
	return l.Write(w)
}

// short is a latency without digits that no model gives.
func short(d time.Duration) time.Duration { return d.Round(100 * time.Nanosecond) }
