package get

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/output"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/rpc"
)

func fabricsCommand(s *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "fabrics [NAME]",
		Aliases:           []string{"fabric"},
		Short:             "List fabrics, the networks of data centers, or the one named",
		Args:              session.Arguments(0, 1, "[NAME]"),
		ValidArgsFunction: s.Complete(1, session.FabricNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				var fabrics []*weirv1.Fabric
				if len(args) == 0 {
					response, err := client.ListFabrics(ctx, &weirv1.ListFabricsRequest{})
					if err != nil {
						return fmt.Errorf("list fabrics: %w", err)
					}
					fabrics = response.GetFabrics()
				} else {
					response, err := client.GetFabric(ctx, &weirv1.GetFabricRequest{Name: args[0]})
					if err != nil {
						return fmt.Errorf("get fabric %s: %w", args[0], err)
					}
					fabrics = []*weirv1.Fabric{response.GetFabric()}
				}
				status := func(*weirv1.Fabric) any { return nil }
				return output.PrintResources(s.Output, cmd.OutOrStdout(), fabrics, status, table.Fabrics(fabrics).Write)
			})
		},
	}
	s.Output.AddFlag(cmd, output.FormatName)
	return cmd
}
