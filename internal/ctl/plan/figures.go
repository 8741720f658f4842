package plan

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/plan"
	"github.com/weirlb/weir/internal/planinput"
	"github.com/weirlb/weir/internal/traffic"
)

// drawnFigure is a figure and its files.
type drawnFigure struct {
	Figure string `json:"figure"`
	SVG    string `json:"svg"`
	CSV    string `json:"csv"`
}

func figuresCommand(s *session.Session) *cobra.Command {
	var input planinput.Input
	var folder, profile string
	cmd := &cobra.Command{
		Use:   "figures",
		Short: "Draw what switches as muxes would do for this network and traffic",
		Long: `Draw the figures of section 8 of the paper on Duet for a network and its traffic: the
software muxes that each way to place VIPs needs, latency, the hottest link while a
container fails, and, of several intervals, the traffic on switches and what moves. Each
figure is a drawing (SVG) and its values (CSV).`,
		Example: `  weir plan figures --fabric east.yaml --trace week.csv --folder figures
  weir plan figures --fabric east.yaml --traffic 800G --vips 500 --intervals 6 --folder figures`,
		Args: session.Arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := input.Check(cmd); err != nil {
				return session.NewUsageError(cmd, err)
			}
			of, err := latencyProfile(profile)
			if err != nil {
				return session.NewUsageError(cmd, err)
			}
			drawn, err := drawFigures(cmd, &input, of, folder)
			if err != nil {
				return err
			}
			return s.Output.Print(cmd.OutOrStdout(), drawn, figuresTable(drawn).Write)
		},
	}
	input.Flags(cmd)
	cmd.Flags().StringVar(&folder, "folder", "figures", "`folder` to write to; it is made if it is not there")
	cmd.Flags().StringVar(&profile, "profile", plan.Measured().Name, "latency and capacity of software muxes: "+strings.Join(profileNames(), " or "))
	session.CompleteFlag(cmd, "profile", profileNames()...)
	s.Output.AddFlag(cmd)
	return cmd
}

func profileNames() (names []string) {
	for _, p := range plan.LatencyProfiles() {
		names = append(names, p.Name)
	}
	return names
}

func latencyProfile(name string) (plan.LatencyProfile, error) {
	for _, p := range plan.LatencyProfiles() {
		if p.Name == name {
			return p, nil
		}
	}
	return plan.LatencyProfile{}, fmt.Errorf("--profile %q is none of %s", name, strings.Join(profileNames(), ", "))
}

func drawFigures(
	cmd *cobra.Command, input *planinput.Input, profile plan.LatencyProfile, folder string,
) (drawn []drawnFigure, err error) {
	network, err := readFabric(cmd, input)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of figures: %w", err)
	}
	figures := plan.Figures{Fabric: network, Profile: profile, Seed: 1}
	if err := input.EachInterval(cmd.Context(), network, func(i traffic.Interval) error {
		fmt.Fprintf(cmd.ErrOrStderr(), "interval %d: placing %d VIPs\n", i.Number, len(i.Demands))
		return figures.Add(cmd.Context(), i)
	}); err != nil {
		return nil, err
	}
	all, err := figures.Draw(cmd.Context())
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		files := drawnFigure{f.Name, filepath.Join(folder, f.Name+".svg"), filepath.Join(folder, f.Name+".csv")}
		if err := planinput.WriteText(files.SVG, f.Chart.SVG()); err != nil {
			return nil, err
		}
		if err := planinput.WriteText(files.CSV, f.Chart.CSV()); err != nil {
			return nil, err
		}
		drawn = append(drawn, files)
	}
	return drawn, nil
}

func figuresTable(drawn []drawnFigure) *table.Table {
	t := table.New("", "no figure", "FIGURE", "DRAWING", "VALUES")
	for _, f := range drawn {
		t.Add(f.Figure, f.SVG, f.CSV)
	}
	return t
}
