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

func networksCommand(s *session.Session) *cobra.Command {
	var labels, tenant string
	cmd := &cobra.Command{
		Use:               "networks [NAME]",
		Aliases:           []string{"network", "vnets", "vnet"},
		Short:             "List virtual networks with their VIPs, or the one named",
		Args:              session.Arguments(0, 1, "[NAME]"),
		ValidArgsFunction: s.Complete(1, session.NetworkNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				if len(args) == 0 {
					request := &weirv1.ListVirtualNetworksRequest{LabelSelector: labels, Tenant: tenant}
					networks, err := session.ListNetworks(ctx, client, request)
					if err != nil {
						return fmt.Errorf("list networks: %w", err)
					}
					return printNetworks(s, cmd.OutOrStdout(), networks)
				}
				response, err := client.GetVirtualNetwork(ctx, &weirv1.GetVirtualNetworkRequest{Name: args[0]})
				if err != nil {
					return fmt.Errorf("get network %s: %w", args[0], err)
				}
				return printNetworks(s, cmd.OutOrStdout(), []*weirv1.VirtualNetwork{response.GetNetwork()})
			})
		},
	}
	selectorFlag(cmd, &labels)
	cmd.Flags().StringVar(&tenant, "tenant", "", "only those of the tenant")
	s.Output.AddFlag(cmd, output.FormatName)
	return cmd
}

func printNetworks(s *session.Session, w io.Writer, networks []*weirv1.VirtualNetwork) error {
	status := func(p *weirv1.VirtualNetwork) any { return output.Message{Message: p.GetStatus()} }
	return output.PrintResources(s.Output, w, networks, status, table.Networks(networks).Write)
}

func overlayCommand(s *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "overlay",
		Short:             "Show what virtual networks need of the cluster",
		Args:              session.Arguments(0, 0, ""),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				response, err := client.GetOverlay(ctx, &weirv1.GetOverlayRequest{})
				if err != nil {
					return fmt.Errorf("get overlay: %w", err)
				}
				overlays := []*weirv1.Overlay{response.GetOverlay()}
				status := func(*weirv1.Overlay) any { return nil }
				return output.PrintResources(s.Output, cmd.OutOrStdout(), overlays, status, table.Overlay(response.GetOverlay()).Write)
			})
		},
	}
	s.Output.AddFlag(cmd, output.FormatName)
	return cmd
}
