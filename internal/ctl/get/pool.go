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
	"github.com/weirlb/weir/internal/rpc"
)

func poolsCommand(s *session.Session) *cobra.Command {
	var labels string
	cmd := &cobra.Command{
		Use:               "pools [NAME]",
		Aliases:           []string{"pool"},
		Short:             "List address pools with their use, or the one named",
		Args:              session.Arguments(0, 1, "[NAME]"),
		ValidArgsFunction: s.Complete(1, session.PoolNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				if len(args) == 0 {
					pools, err := session.ListPools(ctx, client, labels)
					if err != nil {
						return fmt.Errorf("list pools: %w", err)
					}
					return printPools(s, cmd.OutOrStdout(), pools)
				}
				response, err := client.GetAddressPool(ctx, &weirv1.GetAddressPoolRequest{Name: args[0]})
				if err != nil {
					return fmt.Errorf("get pool %s: %w", args[0], err)
				}
				return printPools(s, cmd.OutOrStdout(), []*weirv1.AddressPool{response.GetPool()})
			})
		},
	}
	selectorFlag(cmd, &labels)
	s.Output.AddFlag(cmd, output.FormatName)
	return cmd
}

func printPools(s *session.Session, w io.Writer, pools []*weirv1.AddressPool) error {
	status := func(p *weirv1.AddressPool) any { return output.Message{Message: p.GetStatus()} }
	return output.PrintResources(s.Output, w, pools, status, table.Pools(pools).Write)
}
