// Package placement holds weir placement: where VIPs are of switches, why, and where they would be if they were placed now.
package placement

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/rpc"
)

// Command returns the command placement.
func Command(s *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "placement [VIP]",
		Short: "Show where VIPs are of switches, or where the one named is",
		Long: `Show where VIPs are of switches, or where the one named is.

A VIP whose hardware.placement is require goes into each of its switches, one of placement
auto into those that managers choose, by the phases
preparing, programming, announcing and hardware, and out of it by withdrawing, removing
and leaving; evicted: the switch refused it, and is asked again later. software: it has
not begun, and muxes serve the VIP.`,
		Args:              session.Arguments(0, 1, "[VIP]"),
		ValidArgsFunction: s.Complete(1, session.VIPNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				var vips []*weirv1.VIP
				if len(args) == 0 {
					all, err := session.ListVIPs(ctx, client, &weirv1.ListVIPsRequest{})
					if err != nil {
						return fmt.Errorf("list VIPs: %w", err)
					}
					vips = all
				} else {
					response, err := client.GetVIP(ctx, &weirv1.GetVIPRequest{Name: args[0]})
					if err != nil {
						return fmt.Errorf("get vip %s: %w", args[0], err)
					}
					vips = []*weirv1.VIP{response.GetVip()}
				}
				return table.Placements(vips, s.Now()).Write(cmd.OutOrStdout())
			})
		},
	}
	cmd.AddCommand(explainCommand(s), planCommand(s), optimizeCommand(s))
	return cmd
}
