package describe

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/rpc"
)

func networkCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use:               "network NAME",
		Aliases:           []string{"networks", "vnet", "vnets"},
		Short:             "Show a virtual network: its workloads, and the VIPs that are attached",
		Args:              session.Arguments(1, 1, "NAME"),
		ValidArgsFunction: s.Complete(1, session.NetworkNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				response, err := client.GetVirtualNetwork(ctx, &weirv1.GetVirtualNetworkRequest{Name: args[0]})
				if err != nil {
					return fmt.Errorf("describe network %s: %w", args[0], err)
				}
				return describeNetwork(cmd.OutOrStdout(), response.GetNetwork())
			})
		},
	}
}

func describeNetwork(w io.Writer, n *weirv1.VirtualNetwork) error {
	fmt.Fprintf(w, "Name:        %s\n", n.GetName())
	fmt.Fprintf(w, "Tenant:      %s\n", n.GetTenant())
	fmt.Fprintf(w, "VNI:         %d\n", n.GetVni())
	fmt.Fprintf(w, "Prefixes:    %s\n", strings.Join(n.GetPrefixes(), ", "))
	fmt.Fprintf(w, "MTU:         %d\n", n.GetMtu())
	fmt.Fprintf(w, "Gateway:     %s\n", n.GetGateway().GetMac())
	fmt.Fprintf(w, "Allows:      %s\n", cmp.Or(strings.Join(n.GetAllowedTenants(), ", "), "VIPs of its own tenant only"))
	for _, line := range n.GetStatus().GetPending() {
		fmt.Fprintf(w, "Waits:       %s\n", line)
	}
	fmt.Fprintf(w, "\nVIPs\n")
	if err := table.NetworkVIPs(n.GetStatus().GetVips()).Write(w); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nWorkloads\n")
	return table.NetworkWorkloads(n.GetWorkloads()).Write(w)
}

// attachmentsText tells which virtual networks a VIP is to be in.
func attachmentsText(w io.Writer, vip *weirv1.VIP) error {
	if len(vip.GetAttachments()) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\nAttachments\n")
	if err := table.Attachments(vip.GetAttachments()).Write(w); err != nil {
		return err
	}
	networks := vip.GetStatus().GetNetworks()
	if len(networks) == 0 { // the manager is older
		return nil
	}
	fmt.Fprintf(w, "\nRound trips to clients\n")
	if err := table.RoundTrips(networks).Write(w); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nBypassed connections\n")
	return table.BypassedBackends(networks).Write(w)
}
