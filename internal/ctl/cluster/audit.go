package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/output"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/rpc"
)

// RevokeCommand returns the command revoke.
func RevokeCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "revoke ROLE NAME", Short: "End all certificates of a mux, agent, manager or user, and its open streams",
		Args: session.Arguments(2, 2, "ROLE NAME"), Example: "  weir revoke mux mux7",
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				request := &weirv1.RevokePrincipalRequest{Role: args[0], Name: args[1]}
				if _, err := client.RevokePrincipal(ctx, request); err != nil {
					return fmt.Errorf("revoke %s %s: %w", args[0], args[1], err)
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s revoked\n", args[0], args[1])
				return err
			})
		},
	}
}

// AuditCommand returns the command audit.
func AuditCommand(s *session.Session) *cobra.Command {
	request := &weirv1.ListAuditRequest{}
	var since time.Duration
	cmd := &cobra.Command{
		Use: "audit", Short: "List what was changed and what was refused, the newest first", Args: cobra.NoArgs,
		Example: "  weir audit --since 1h --identity user/alice\n  weir audit --subject vip/shop",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if since > 0 {
				request.Since = timestamppb.New(time.Now().Add(-since))
			}
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				response, err := client.ListAudit(ctx, request)
				if err != nil {
					return fmt.Errorf("list the audit log: %w", err)
				}
				entries := response.GetEntries()
				return s.Output.Print(cmd.OutOrStdout(), output.Messages(entries), table.AuditEntries(entries).Write)
			})
		},
	}
	cmd.Flags().Uint32Var(&request.Limit, "limit", 100, "how many entries at most")
	cmd.Flags().BoolVar(&request.Refused, "refused", false, "only what was refused")
	cmd.Flags().StringVar(&request.Identity, "identity", "", "only what this one did: user/alice, host/h1, mux/mux1")
	cmd.Flags().StringVar(&request.Subject, "subject", "", "only what was about this: vip/shop, tenant/acme")
	cmd.Flags().DurationVar(&since, "since", 0, "only what is not older than this")
	s.Output.AddFlag(cmd)
	return cmd
}
