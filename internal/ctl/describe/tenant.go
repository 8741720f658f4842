package describe

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/rpc"
)

func tenantCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use:               "tenant NAME",
		Aliases:           []string{"tenants"},
		Short:             "Show a tenant: what it may have, what it uses, and its VIPs",
		Args:              session.Arguments(1, 1, "NAME"),
		ValidArgsFunction: s.Complete(1, session.TenantNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				response, err := client.GetTenant(ctx, &weirv1.GetTenantRequest{Name: args[0]})
				if err != nil {
					return fmt.Errorf("describe tenant %s: %w", args[0], err)
				}
				vips, err := session.ListVIPs(ctx, client, &weirv1.ListVIPsRequest{Tenant: args[0]})
				if err != nil {
					return fmt.Errorf("describe tenant %s: %w", args[0], err)
				}
				return describeTenant(cmd.OutOrStdout(), response.GetTenant(), vips)
			})
		},
	}
}

func describeTenant(w io.Writer, p *weirv1.Tenant, vips []*weirv1.VIP) error {
	used, most := p.GetUsed(), p.GetQuotas()
	for _, line := range [][2]string{
		{"Name", p.GetName()},
		{"Ranges", table.TenantRanges(p)},
		{"May reach", tenantBackends(p.GetBackends())},
		{"VIPs", table.OfQuota(used.GetVips(), most.Vips)},
		{"Endpoints", table.OfQuota(used.GetEndpoints(), most.Endpoints)},
		{"Backends", table.OfQuota(used.GetBackends(), most.Backends)},
		{"Ports", table.OfQuota(used.GetPorts(), most.Ports)},
		{"Prefixes", table.OfQuota(used.GetPrefixes(), most.Prefixes)},
		{"Networks", table.OfQuota(used.GetNetworks(), most.Networks)},
		{"Workloads", table.OfQuota(used.GetWorkloads(), most.Workloads)},
		{"Attachments", table.OfQuota(used.GetAttachments(), most.Attachments)},
		{"In switches", table.OfQuota(used.GetSwitchHosts(), most.SwitchHosts) + ", tunnels " + table.OfQuota(used.GetSwitchTunnels(), most.SwitchTunnels)},
		{"Flows", ofNode(p.GetFlows())},
		{"Sessions", ofNode(p.GetSessions())},
		{"Source NAT", ofNode(p.GetSnat())},
	} {
		fmt.Fprintf(w, "%-12s %s\n", line[0]+":", line[1])
	}
	fmt.Fprintln(w)
	t := table.New("  ", "none", "VIP", "ADDRESS")
	for _, vip := range vips {
		t.Add(vip.GetName(), vip.GetAddress())
	}
	return t.Write(w)
}

// ofNode is "1200/524288 on mux1".
func ofNode(r *weirv1.NodeRows) string {
	if r == nil {
		return "none"
	}
	return fmt.Sprintf("%d/%d on %s", r.GetUsed(), r.GetLimit(), r.GetNode())
}

// tenantBackends is "10.3.0.0/22, own addresses of host7".
func tenantBackends(b *weirv1.TenantBackends) string {
	parts := slices.Clone(b.GetPrefixes())
	if len(b.GetHosts()) > 0 {
		parts = append(parts, "own addresses of "+strings.Join(b.GetHosts(), ", "))
	}
	if len(parts) == 0 {
		return "what is no node's and no other tenant's"
	}
	return strings.Join(parts, ", ")
}
