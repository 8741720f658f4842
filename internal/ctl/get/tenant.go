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

func tenantsCommand(s *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "tenants [NAME]",
		Aliases:           []string{"tenant"},
		Short:             "List tenants with what they use of what they may have, or the one named",
		Args:              session.Arguments(0, 1, "[NAME]"),
		ValidArgsFunction: s.Complete(1, session.TenantNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				if len(args) == 0 {
					tenants, err := session.ListTenants(ctx, client)
					if err != nil {
						return fmt.Errorf("list tenants: %w", err)
					}
					return printTenants(s, cmd.OutOrStdout(), tenants)
				}
				response, err := client.GetTenant(ctx, &weirv1.GetTenantRequest{Name: args[0]})
				if err != nil {
					return fmt.Errorf("get tenant %s: %w", args[0], err)
				}
				return printTenants(s, cmd.OutOrStdout(), []*weirv1.Tenant{response.GetTenant()})
			})
		},
	}
	s.Output.AddFlag(cmd, output.FormatName)
	return cmd
}

func printTenants(s *session.Session, w io.Writer, tenants []*weirv1.Tenant) error {
	return output.PrintResources(s.Output, w, tenants, tenantStatus, table.Tenants(tenants).Write)
}

// tenantStatus is what a tenant's document says beside what it may have.
func tenantStatus(p *weirv1.Tenant) any {
	status := map[string]output.Message{"used": {Message: p.GetUsed()}}
	if p.GetFlows() != nil {
		status["flows"] = output.Message{Message: p.GetFlows()}
	}
	if p.GetSessions() != nil {
		status["sessions"] = output.Message{Message: p.GetSessions()}
	}
	if p.GetSnat() != nil {
		status["snat"] = output.Message{Message: p.GetSnat()}
	}
	return status
}
