package ctl

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/manifest"
	"github.com/weirlb/weir/internal/rpc"
)

func (s *session) getTenantsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "tenants [NAME]",
		Aliases:           []string{"tenant"},
		Short:             "List tenants with what they use of what they may have, or the one named",
		Args:              arguments(0, 1, "[NAME]"),
		ValidArgsFunction: s.complete(1, tenantNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				if len(args) == 0 {
					response, err := client.ListTenants(ctx, &weirv1.ListTenantsRequest{})
					if err != nil {
						return fmt.Errorf("list tenants: %w", err)
					}
					return s.printTenants(cmd.OutOrStdout(), response.GetTenants())
				}
				response, err := client.GetTenant(ctx, &weirv1.GetTenantRequest{Name: args[0]})
				if err != nil {
					return fmt.Errorf("get tenant %s: %w", args[0], err)
				}
				return s.printTenants(cmd.OutOrStdout(), []*weirv1.Tenant{response.GetTenant()})
			})
		},
	}
	s.outputFlag(cmd)
	return cmd
}

func (s *session) printTenants(w io.Writer, tenants []*weirv1.Tenant) error {
	if s.format == formatTable {
		t := newColumns("", "no tenants: weir apply -f FILE makes some", "NAME", "RANGES", "VIPS", "ENDPOINTS", "BACKENDS", "PORTS", "PREFIXES", "FLOWS", "SESSIONS", "SNAT")
		for _, p := range tenants {
			used, most := p.GetUsed(), p.GetQuotas()
			t.add(p.GetName(), tenantRanges(p), ofQuota(used.GetVips(), most.Vips), ofQuota(used.GetEndpoints(), most.Endpoints),
				ofQuota(used.GetBackends(), most.Backends), ofQuota(used.GetPorts(), most.Ports),
				ofQuota(used.GetPrefixes(), most.Prefixes), part(p.GetFlows()), part(p.GetSessions()), part(p.GetSnat()))
		}
		return t.write(w)
	}
	documents := make([]manifest.Document, 0, len(tenants))
	for _, p := range tenants {
		documents = append(documents, manifest.Document{Message: p, Status: tenantStatus(p)})
	}
	return s.printDocuments(w, documents)
}

// tenantStatus is what a tenant's document says beside what it may have.
func tenantStatus(p *weirv1.Tenant) map[string]message {
	status := map[string]message{"used": {p.GetUsed()}}
	if p.GetFlows() != nil {
		status["flows"] = message{p.GetFlows()}
	}
	if p.GetSessions() != nil {
		status["sessions"] = message{p.GetSessions()}
	}
	if p.GetSnat() != nil {
		status["snat"] = message{p.GetSnat()}
	}
	return status
}

// part is "12%" of what a tenant may have of a node's table.
func part(r *weirv1.NodeRows) string {
	if r.GetLimit() == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*float64(r.GetUsed())/float64(r.GetLimit()))
}

// ofNode is "1200/524288 on mux1".
func ofNode(r *weirv1.NodeRows) string {
	if r == nil {
		return "none"
	}
	return fmt.Sprintf("%d/%d on %s", r.GetUsed(), r.GetLimit(), r.GetNode())
}

func tenantRanges(p *weirv1.Tenant) string {
	if len(p.GetRanges()) == 0 {
		return "all"
	}
	return strings.Join(p.GetRanges(), ",")
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

// ofQuota is "3/10", or "3" if there is no limit.
func ofQuota(used uint32, most *uint32) string {
	if most == nil {
		return fmt.Sprint(used)
	}
	return fmt.Sprintf("%d/%d", used, *most)
}

func (s *session) describeTenantCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "tenant NAME",
		Aliases:           []string{"tenants"},
		Short:             "Show a tenant: what it may have, what it uses, and its VIPs",
		Args:              arguments(1, 1, "NAME"),
		ValidArgsFunction: s.complete(1, tenantNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				response, err := client.GetTenant(ctx, &weirv1.GetTenantRequest{Name: args[0]})
				if err != nil {
					return fmt.Errorf("describe tenant %s: %w", args[0], err)
				}
				vips, err := listVIPs(ctx, client, &weirv1.ListVIPsRequest{Tenant: args[0]})
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
		{"Ranges", tenantRanges(p)},
		{"May reach", tenantBackends(p.GetBackends())},
		{"VIPs", ofQuota(used.GetVips(), most.Vips)},
		{"Endpoints", ofQuota(used.GetEndpoints(), most.Endpoints)},
		{"Backends", ofQuota(used.GetBackends(), most.Backends)},
		{"Ports", ofQuota(used.GetPorts(), most.Ports)},
		{"Prefixes", ofQuota(used.GetPrefixes(), most.Prefixes)},
		{"Flows", ofNode(p.GetFlows())},
		{"Sessions", ofNode(p.GetSessions())},
		{"Source NAT", ofNode(p.GetSnat())},
	} {
		fmt.Fprintf(w, "%-12s %s\n", line[0]+":", line[1])
	}
	fmt.Fprintln(w)
	t := newColumns("  ", "none", "VIP", "ADDRESS")
	for _, vip := range vips {
		t.add(vip.GetName(), vip.GetAddress())
	}
	return t.write(w)
}

func tenantNames(ctx context.Context, client *rpc.Client) ([]string, error) {
	response, err := client.ListTenants(ctx, &weirv1.ListTenantsRequest{})
	var names []string
	for _, p := range response.GetTenants() {
		names = append(names, p.GetName())
	}
	return names, err
}

func (s *session) deleteTenantCommand() *cobra.Command {
	return s.deleteCommand("tenant", "Delete tenants. It is refused while one has VIPs or users", tenantNames, s.deleteTenants)
}

func (s *session) deleteTenants(cmd *cobra.Command, names []string) error {
	return s.deleteEach(cmd, "tenant", names, func(ctx context.Context, client *rpc.Client, name string) error {
		_, err := client.DeleteTenant(ctx, &weirv1.DeleteTenantRequest{Name: name})
		return err
	})
}

// applyTenants applies tenants, which have a transaction of their own before that of VIPs and pools: their quotas
// and ranges hold for those.
func (s *session) applyTenants(cmd *cobra.Command, resources []manifest.Resource) error {
	request := &weirv1.ApplyTenantsRequest{}
	for _, r := range resources {
		if tenant, ok := r.Message.(*weirv1.Tenant); ok {
			request.Tenants = append(request.Tenants, tenant)
		}
	}
	if len(request.GetTenants()) == 0 {
		return nil
	}
	return s.call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
		response, err := client.ApplyTenants(ctx, request)
		if err != nil {
			return fmt.Errorf("apply: %w", locate(err, resources))
		}
		for _, t := range response.GetTenants() {
			fmt.Fprintf(s.progress(cmd), "tenant %s %s\n", t.GetName(), t.GetChange())
		}
		return nil
	})
}

// progress is where lines for people go that do not belong to the result: nowhere else than the result's table.
func (s *session) progress(cmd *cobra.Command) io.Writer {
	if s.format == formatTable {
		return cmd.OutOrStdout()
	}
	return cmd.ErrOrStderr()
}
