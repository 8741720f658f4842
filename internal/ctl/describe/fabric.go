package describe

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/fabric/cabling"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

func fabricCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use:               "fabric NAME",
		Aliases:           []string{"fabrics"},
		Short:             "Show a fabric, and how its links are other than declared, as its switches report",
		Args:              session.Arguments(1, 1, "NAME"),
		ValidArgsFunction: s.Complete(1, session.FabricNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				declared, err := client.GetFabric(ctx, &weirv1.GetFabricRequest{Name: args[0]})
				if err != nil {
					return fmt.Errorf("describe fabric %s: %w", args[0], err)
				}
				switches, err := client.Nodes(ctx, model.RoleSwitch)
				if err != nil {
					return fmt.Errorf("describe fabric %s: %w", args[0], err)
				}
				return describeFabric(cmd.OutOrStdout(), declared.GetFabric(), switches)
			})
		},
	}
}

func describeFabric(w io.Writer, m *weirv1.Fabric, switches []*weirv1.Node) error {
	f, err := compile.Fabric(m)
	if err != nil {
		return fmt.Errorf("read fabric %s, of a newer release: %w", m.GetName(), err)
	}
	plan, reported := cabling.New(f), map[string][]cabling.Port{}
	for _, n := range switches {
		if !n.GetStatus().GetConnected() {
			continue
		}
		for _, p := range n.GetStatus().GetSwitch().GetPorts() {
			reported[n.GetName()] = append(reported[n.GetName()], cabling.PortOf(p))
		}
	}
	known, there := plan.Compare(reported)
	reports := 0
	for name := range reported {
		if plan.Has(name) {
			reports++
		}
	}
	fmt.Fprintf(w, "Name:        %s\n", m.GetName())
	fmt.Fprintf(w, "Switches:    %d, of which %d report their ports\n", len(f.Switches), reports)
	fmt.Fprintf(w, "Racks:       %d\n", len(f.Racks))
	fmt.Fprintf(w, "Links:       %d are to be up, %d are there as switches report\n", plan.Links, there)
	fmt.Fprintln(w, "\nOther than declared")
	return table.FabricLinks(known).Write(w)
}
