package get

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/output"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

func nodesCommand(s *session.Session) *cobra.Command {
	var role string
	watch := false
	cmd := &cobra.Command{
		Use:               "nodes [NAME]",
		Aliases:           []string{"node"},
		Short:             "List muxes, hosts and switches, or the one named",
		Args:              session.Arguments(0, 1, "[NAME]"),
		ValidArgsFunction: s.Complete(1, session.NodeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.View(cmd, watch, func(ctx context.Context, client *rpc.Client, out io.Writer) error {
				if len(args) == 0 {
					nodes, err := client.Nodes(ctx, model.Role(role))
					if err != nil {
						return fmt.Errorf("list nodes: %w", err)
					}
					return s.Output.Print(out, output.Messages(nodes), nodeTable(s, nodes))
				}
				response, err := client.GetNode(ctx, &weirv1.GetNodeRequest{Name: args[0]})
				if err != nil {
					return fmt.Errorf("get node %s: %w", args[0], err)
				}
				nodes := []*weirv1.Node{response.GetNode()}
				return s.Output.Print(out, output.Message{Message: nodes[0]}, nodeTable(s, nodes))
			})
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on, every two seconds")
	cmd.Flags().StringVar(&role, "role", "", "only nodes of the `role` mux, host or switch")
	session.CompleteFlag(cmd, "role", "mux", "host", "switch")
	s.Output.AddFlag(cmd, output.FormatWide, output.FormatName)
	return cmd
}

// nodeTable is how nodes are listed, wide or not.
func nodeTable(s *session.Session, nodes []*weirv1.Node) func(io.Writer) error {
	if s.Output == output.FormatWide {
		return table.NodesWide(nodes, s.Now()).Write
	}
	return table.Nodes(nodes, s.Now()).Write
}
