package plan

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/plan"
	"github.com/weirlb/weir/internal/planinput"
	"github.com/weirlb/weir/internal/traffic"
)

func trafficCommand(s *session.Session) *cobra.Command {
	var input planinput.Input
	var write, plot string
	cmd := &cobra.Command{
		Use:   "traffic",
		Short: "Check a trace, or generate one",
		Long: `Check a trace of traffic against a fabric, or generate one, and say what each interval holds:
VIPs, backends, rate, the part that comes from outside, and the parts of the largest
1 % and 10 % of the VIPs. What is wrong with a trace is refused with its line.`,
		Example: `  weir plan traffic --fabric east.yaml --trace week.csv
  weir plan traffic --traffic 10T --intervals 18 --write trace.csv --plot vips.svg`,
		Args: session.Arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := input.Check(cmd); err != nil {
				return session.NewUsageError(cmd, err)
			}
			found, err := planTraffic(cmd, &input, write, plot)
			if err != nil {
				return err
			}
			return s.Output.Print(cmd.OutOrStdout(), found, trafficTable(found).Write)
		},
	}
	input.Flags(cmd)
	cmd.Flags().StringVar(&write, "write", "", "`file` to write the traffic to, as a trace")
	cmd.Flags().StringVar(&plot, "plot", "",
		"`file` to draw into, as SVG, which part of traffic and backends the largest VIPs have in the first interval")
	s.Output.AddFlag(cmd)
	return cmd
}

func planTraffic(
	cmd *cobra.Command, input *planinput.Input, write, plot string,
) (found []plan.TrafficSummary, err error) {
	network, err := readFabric(cmd, input)
	if err != nil {
		return nil, err
	}
	pass := func(to io.Writer) error {
		trace := traffic.NewWriter(to, planinput.RackNames(network))
		return input.EachInterval(cmd.Context(), network, func(i traffic.Interval) error {
			if plot != "" && len(found) == 0 {
				if err := planinput.WriteText(plot, plan.ConcentrationChart(plan.Concentrations(i.Demands)).SVG()); err != nil {
					return err
				}
			}
			found = append(found, plan.Summarize(i))
			if write == "" {
				return nil
			}
			return trace.Write(i)
		})
	}
	if write == "" {
		return found, pass(io.Discard)
	}
	err = planinput.WriteWhole(write, pass)
	return found, err
}

func trafficTable(found []plan.TrafficSummary) *table.Table {
	t := table.New("", "no interval", "INTERVAL", "VIPS", "BACKENDS", "BIT/S", "OUTSIDE", "TOP 1 %", "TOP 10 %")
	for _, f := range found {
		t.Add(f.Interval, f.VIPs, f.Backends, planinput.FormatBits(traffic.Rate(f.Rate)),
			percent(f.External), percent(f.Top1), percent(f.Top10))
	}
	return t
}

func percent(part float64) string { return fmt.Sprintf("%.1f %%", 100*part) }
