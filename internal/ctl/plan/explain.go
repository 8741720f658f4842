package plan

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/placement"
	"github.com/weirlb/weir/internal/planinput"
)

func explainCommand(s *session.Session) *cobra.Command {
	var q question
	cmd := &cobra.Command{
		Use:   "explain VIP",
		Short: "Say where a VIP is placed, and why",
		Long: `Say where a VIP of an interval is placed and which resource is used most there, or why it
stays with the software muxes; and, of each kind of switches and sets of switches, which was
the best when it came to the VIP, and how much of its scarcest resource the VIP would use.

VIPs with a pin come first, then those that are required, then all others, by traffic.`,
		Example: `  weir plan explain shop --fabric east.yaml --trace week.csv`,
		Args:    session.Arguments(1, 1, "VIP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := q.read(cmd, progress(cmd)); err != nil {
				return err
			}
			x, err := placement.Explain(cmd.Context(), q.network, q.interval.Demands, nil, q.policy, args[0])
			if err != nil {
				return fmt.Errorf("interval %d: %w", q.interval.Number, err)
			}
			return s.Output.Print(cmd.OutOrStdout(), x, func(w io.Writer) error { return writeExplanation(w, x) })
		},
	}
	q.flags(cmd)
	s.Output.AddFlag(cmd)
	return cmd
}

func writeExplanation(w io.Writer, x *placement.Explanation) error {
	where := "software muxes"
	if len(x.Switches) > 0 {
		where = strings.Join(x.Switches, ", ")
	}
	fmt.Fprintf(w, "VIP:       %s, %s, %d backends\n", x.VIP, planinput.FormatBits(x.Rate), x.Backends)
	if x.Rule != "" {
		fmt.Fprintf(w, "Rule:      %s\n", x.Rule)
	}
	fmt.Fprintf(w, "Turn:      %d of %d\nOn:        %s\nBecause:   %s\n\n", x.Turn, x.Of, where, because(x))
	t := table.New("", "no switch may take it", "KIND", "FIT", "OF", "BEST", "USED", "MOST USED THERE")
	for _, o := range x.Options {
		t.Add(o.Kind, o.Fit, o.Candidates, strings.Join(shorten(o.Switches), ", "), percent(o.Utilisation), o.Reason)
	}
	return t.Write(w)
}

func because(x *placement.Explanation) string {
	if len(x.Switches) == 0 {
		return x.Reason
	}
	return "it fits, and uses most of " + x.Reason
}

// shownSwitches is how many switches of a set are named.
const shownSwitches = 4

func shorten(switches []string) []string {
	if len(switches) <= shownSwitches {
		return switches
	}
	return append(switches[:shownSwitches-1:shownSwitches-1], fmt.Sprintf("%d more", len(switches)-shownSwitches+1))
}
