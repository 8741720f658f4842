package placement

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/output"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/planinput"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/traffic"
)

func planCommand(s *session.Session) *cobra.Command {
	var anew bool
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Say where VIPs would be if they were placed now, and change nothing",
		Long: `Say where the VIPs of placement auto would be if they were placed now, and which moves would
lead there, in their order. Nothing changes. Without --optimize, what fits where it is stays
there, as in the repair that managers make every ten minutes.`,
		Args: session.Arguments(0, 0, ""), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				response, err := client.PlanPlacement(ctx, &weirv1.PlanPlacementRequest{Optimize: anew})
				if err != nil {
					return fmt.Errorf("plan placement: %w", err)
				}
				return printPlan(s, cmd.OutOrStdout(), response)
			})
		},
	}
	cmd.Flags().BoolVar(&anew, "optimize", false, "place all anew, as weir placement optimize does")
	s.Output.AddFlag(cmd)
	return cmd
}

func optimizeCommand(s *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "optimize",
		Short: "Place all VIPs of placement auto anew, and move them",
		Long: `Place all VIPs of placement auto anew, wherever they are, and move them: 32 at once at most,
from switch to switch, and by way of the muxes only where tables have no room for both. What
is left of the moves is given up when another manager leads, or when switches or VIPs change.`,
		Args: session.Arguments(0, 0, ""), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				response, err := client.OptimizePlacement(ctx, &weirv1.OptimizePlacementRequest{})
				if err != nil {
					return fmt.Errorf("optimize placement: %w", err)
				}
				return printPlan(s, cmd.OutOrStdout(), response.GetPlan())
			})
		},
	}
	s.Output.AddFlag(cmd)
	return cmd
}

func bits(kbit uint64) string { return planinput.FormatBits(traffic.Rate(kbit)) }

// switches are names of switches; none: the muxes.
func switches(names []string) string { return cmp.Or(strings.Join(names, ","), "muxes") }

func printPlan(s *session.Session, w io.Writer, p *weirv1.PlanPlacementResponse) error {
	return s.Output.Print(w, output.Message{Message: p}, func(w io.Writer) error {
		fmt.Fprintf(w, "%d of %d VIPs in switches; %s of %s with those of placement require\n",
			p.GetPlaced(), int(p.GetPlaced())+len(p.GetUnplaced()), bits(p.GetHardwareKbitPerS()), bits(p.GetKbitPerS()))
		if n := p.GetUnmeasured(); n > 0 {
			fmt.Fprintf(w, "the traffic of %d VIPs is not known: they count as the mean of the others\n", n)
		}
		moves := table.New("  ", "", "VIP", "FROM", "TO", "BIT/S", "")
		for _, m := range p.GetMoves() {
			via := ""
			if m.GetViaMuxes() {
				via = "by way of the muxes"
			}
			moves.Add(m.GetVip(), switches(m.GetFrom()), switches(m.GetTo()), bits(m.GetKbitPerS()), via)
		}
		left := table.New("  ", "", "VIP", "BIT/S", "REASON")
		for _, u := range p.GetUnplaced() {
			left.Add(u.GetVip(), bits(u.GetKbitPerS()), u.GetReason())
		}
		links := table.New("  ", "", "LINK", "BIT/S", "OF ITS SHARE")
		for _, l := range p.GetHotLinks() {
			links.Add(l.GetName(), bits(l.GetKbitPerS()), percent(l.GetUtilisationPermille()))
		}
		for _, part := range []struct {
			n     int
			title string
			t     *table.Table
		}{{len(p.GetMoves()), "Moves", moves}, {len(p.GetUnplaced()), "With the muxes", left}, {len(p.GetHotLinks()), "Hottest links", links}} {
			if part.n == 0 {
				continue
			}
			fmt.Fprintf(w, "\n%s\n", part.title)
			if err := part.t.Write(w); err != nil {
				return err
			}
		}
		return nil
	})
}

func percent(permille uint32) string { return fmt.Sprintf("%.1f%%", float64(permille)/10) }

func explainCommand(s *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "explain VIP",
		Short:             "Say why a VIP is in its switches, or with the muxes",
		Args:              session.Arguments(1, 1, "VIP"),
		ValidArgsFunction: s.Complete(1, session.VIPNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				response, err := client.ExplainPlacement(ctx, &weirv1.ExplainPlacementRequest{Vip: args[0]})
				if err != nil {
					return fmt.Errorf("explain placement of %s: %w", args[0], err)
				}
				return s.Output.Print(cmd.OutOrStdout(), output.Message{Message: response}, func(w io.Writer) error { return printExplanation(w, response) })
			})
		},
	}
	s.Output.AddFlag(cmd)
	return cmd
}

func printExplanation(w io.Writer, p *weirv1.ExplainPlacementResponse) error {
	fmt.Fprintf(w, "placement   %s\n", p.GetPlacement())
	fmt.Fprintf(w, "chosen      %s\n", switches(p.GetSwitches()))
	if p.GetBackends() > 0 {
		rate := bits(p.GetKbitPerS()) + "bit/s"
		if p.GetUnmeasured() {
			rate += ", as others: its own is not known"
		}
		fmt.Fprintf(w, "traffic     %s\n", rate)
		fmt.Fprintf(w, "tunnels     %d\n", p.GetBackends())
		fmt.Fprintf(w, "now it would be with %s\n", switches(p.GetWouldBe()))
	}
	fmt.Fprintf(w, "because     %s\n", p.GetReason())
	if len(p.GetOptions()) == 0 {
		return nil
	}
	t := table.New("  ", "", "KIND", "HAVE ROOM", "BEST", "MOST USED", "BY")
	for _, o := range p.GetOptions() {
		t.Add(o.GetKind(), fmt.Sprintf("%d of %d", o.GetFit(), o.GetCandidates()), strings.Join(o.GetSwitches(), ","), percent(o.GetUtilisationPermille()), o.GetReason())
	}
	return t.Write(w)
}
