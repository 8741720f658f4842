package plan

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/placement"
	"github.com/weirlb/weir/internal/plan"
	"github.com/weirlb/weir/internal/planinput"
	"github.com/weirlb/weir/internal/traffic"
)

func capacityCommand(s *session.Session) *cobra.Command {
	var q question
	var failures int
	var plot string
	cmd := &cobra.Command{
		Use:   "capacity",
		Short: "Say how many software muxes are needed, which links get hot, and what failures do",
		Long: `Place the VIPs of an interval on switches, and say how many software muxes are needed for
what is left and for the worst failure of a container or of three switches; which VIPs are
left, and by which resource; which links get hot; and what failures do: the traffic on
software muxes then, the traffic of clients and backends that is gone, and the hottest link.

Failures are those of the containers, of the switches of each tier, and of the links
between two tiers that carry most.`,
		Example: `  weir plan capacity --fabric east.yaml --trace week.csv --rules rules.csv
  weir plan capacity --traffic 10T --mux 3.6G --failures all --plot links.svg`,
		Args: session.Arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			tell := progress(cmd)
			if err := q.read(cmd, tell); err != nil {
				return err
			}
			found, err := plan.FindCapacity(cmd.Context(), plan.CapacityQuestion{
				Fabric: q.network, Interval: q.interval, Policy: q.policy, MuxRate: q.place.MuxRate(), Failures: failures, Progress: tell,
			})
			if err != nil {
				return err
			}
			if plot != "" {
				if err := planinput.WriteText(plot, found.UsageChart().SVG()); err != nil {
					return err
				}
			}
			return s.Output.Print(cmd.OutOrStdout(), found, func(w io.Writer) error { return writeCapacity(w, found) })
		},
	}
	q.flags(cmd)
	failures = 3
	cmd.Flags().Var((*failureCount)(&failures), "failures", "`number` of containers, of switches of each tier, and of links between two tiers that fail: all, or a number")
	cmd.Flags().StringVar(&plot, "plot", "", "`file` to draw into, as SVG, how much of their bandwidth links use")
	s.Output.AddFlag(cmd)
	return cmd
}

func writeCapacity(w io.Writer, c *plan.Capacity) error {
	fmt.Fprintf(w, "Interval:            %d\n", c.Interval)
	fmt.Fprintf(w, "VIPs:                %d, %d of them on switches\n", c.VIPs, c.Placed)
	fmt.Fprintf(w, "Traffic:             %s, %s of it on switches\n",
		planinput.FormatBits(c.Rate), percent(ratio(c.Hardware, c.Rate)))
	budget := "none"
	if c.Budget > 0 {
		budget = fmt.Sprintf("%.4g %% of the traffic", 100*c.Budget)
	}
	fmt.Fprintf(w, "Failure budget:      %s\n", budget)
	fmt.Fprintf(w, "On software muxes:   %s, once the worst container or the worst three switches fail\n", planinput.FormatBits(c.Software))
	sections := []struct {
		name  string
		table *table.Table
	}{
		{"Software muxes", muxTable(c)},
		{"Not on switches", unplacedTable(c)},
		{"Hottest links", linkTable(c)},
		{"Failures", failureTable(c)},
	}
	for _, s := range sections {
		if _, err := fmt.Fprintf(w, "\n%s:\n", s.name); err != nil {
			return err
		}
		if err := s.table.Write(w); err != nil {
			return err
		}
	}
	return nil
}

func muxTable(c *plan.Capacity) *table.Table {
	t := table.New("  ", "", "CAPACITY", "MUXES", "AT LEAST", "WITHOUT SWITCHES", "OF")
	for _, m := range c.Muxes {
		of := "--mux"
		if m.Profile != "" {
			of = "profile " + m.Profile
		}
		t.Add(planinput.FormatBits(m.MuxRate), m.Muxes, m.Least, m.Without, of)
	}
	return t
}

func unplacedTable(c *plan.Capacity) *table.Table {
	t := table.New("  ", "all VIPs are on switches", "FOR WANT OF", "VIPS", "REQUIRED", "BIT/S", "SUCH AS", "REASON")
	for _, u := range c.Unplaced {
		t.Add(resourceName(u.Resource), u.VIPs, u.Required, planinput.FormatBits(u.Rate), u.Example, u.Reason)
	}
	return t
}

// resourceNames are for people.
var resourceNames = map[placement.Resource]string{
	placement.LinkBandwidth: "bandwidth", placement.SwitchTable: "table entries", placement.GroupSize: "entries of a group", placement.HostTable: "host routes",
	placement.SwitchBudget: "failure budget of switches", placement.ContainerBudget: "failure budget of containers",
	placement.EqualShares: "equal shares",
}

func resourceName(r placement.Resource) string {
	if r == placement.NoResource {
		return "a place"
	}
	return resourceNames[r]
}

func linkTable(c *plan.Capacity) *table.Table {
	t := table.New("  ", "no link carries traffic of VIPs on switches", "LINK", "BIT/S", "OF WHAT MAY BE USED")
	for _, l := range c.Links {
		t.Add(l.Name, planinput.FormatBits(l.Rate), percent(l.Utilisation))
	}
	return t
}

func failureTable(c *plan.Capacity) *table.Table {
	t := table.New("  ", "", "OF", "NAME", "ON SOFTWARE", "MUXES", "GONE", "HOTTEST LINK", "OF ITS BANDWIDTH")
	for _, f := range c.Failures {
		if f.Note != "" {
			t.Add(f.Kind, f.Name, "", "", planinput.FormatBits(f.Gone), f.Note, "")
			continue
		}
		t.Add(f.Kind, f.Name, planinput.FormatBits(f.Software), f.Muxes, planinput.FormatBits(f.Gone), f.Hottest, percent(f.Utilisation))
	}
	return t
}

// ratio is a part of a rate, and 0 of nothing.
func ratio(a, of traffic.Rate) float64 {
	if of == 0 {
		return 0
	}
	return float64(a) / float64(of)
}

// failureCount is how many failures of a group are computed; -1 for all. It is a pflag.Value.
type failureCount int

// Type is what help calls the value.
func (n *failureCount) Type() string { return "number" }

func (n *failureCount) String() string {
	if *n < 0 {
		return "all"
	}
	return fmt.Sprint(int(*n))
}

// Set reads the flag.
func (n *failureCount) Set(text string) error {
	if strings.EqualFold(text, "all") {
		*n = -1
		return nil
	}
	var value int
	if _, err := fmt.Sscanf(text, "%d", &value); err != nil || value < 0 || fmt.Sprint(value) != text {
		return fmt.Errorf("must be all, or a number from 0")
	}
	*n = failureCount(value)
	return nil
}
