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

func nodesCommand(s *session.Session) *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use:               "nodes [NAME]",
		Aliases:           []string{"node"},
		Short:             "List muxes, hosts and switches, or the one named",
		Args:              session.Arguments(0, 1, "[NAME]"),
		ValidArgsFunction: s.Complete(1, session.NodeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				if len(args) == 0 {
					response, err := client.ListNodes(ctx, &weirv1.ListNodesRequest{Role: role})
					if err != nil {
						return fmt.Errorf("list nodes: %w", err)
					}
					nodes := response.GetNodes()
					return s.Output.Print(cmd.OutOrStdout(), output.Messages(nodes), table.Nodes(nodes, s.Now()).Write)
				}
				response, err := client.GetNode(ctx, &weirv1.GetNodeRequest{Name: args[0]})
				if err != nil {
					return fmt.Errorf("get node %s: %w", args[0], err)
				}
				nodes := []*weirv1.Node{response.GetNode()}
				return s.Output.Print(cmd.OutOrStdout(), output.Message{Message: nodes[0]}, table.Nodes(nodes, s.Now()).Write)
			})
		},
	}
	cmd.Flags().StringVar(&role, "role", "", "only nodes of the `role` mux, host or switch")
	session.CompleteFlag(cmd, "role", "mux", "host", "switch")
	s.Output.AddFlag(cmd)
	return cmd
}
