package get

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/ctl/output"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

func switchesCommand(s *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "switches",
		Aliases: []string{"switch"},
		Short:   "List switches: their driver, tables, and VIPs",
		Args:    session.Arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				nodes, err := client.Nodes(ctx, model.RoleSwitch)
				if err != nil {
					return fmt.Errorf("list switches: %w", err)
				}
				return s.Output.Print(cmd.OutOrStdout(), output.Messages(nodes), table.Switches(nodes, s.Now()).Write)
			})
		},
	}
	s.Output.AddFlag(cmd, output.FormatName)
	return cmd
}
