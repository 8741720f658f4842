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

func managersCommand(s *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "managers",
		Aliases: []string{"manager"},
		Short:   "List the replicas of the manager: who leads, and how each of them is",
		Args:    session.Arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				response, err := client.ListManagers(ctx, &weirv1.ListManagersRequest{})
				if err != nil {
					return fmt.Errorf("list managers: %w", err)
				}
				managers := response.GetManagers()
				return s.Output.Print(cmd.OutOrStdout(), output.Messages(managers), table.Managers(managers).Write)
			})
		},
	}
	s.Output.AddFlag(cmd, output.FormatName)
	return cmd
}
