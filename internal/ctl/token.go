package ctl

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

func tokenCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Make, list and delete the tokens that nodes join with"}
	group(cmd)
	cmd.AddCommand(s.createTokenCommand(), s.listTokensCommand(), s.deleteTokenCommand())
	return cmd
}

func (s *session) createTokenCommand() *cobra.Command {
	request, life, file := &weirv1.CreateTokenRequest{}, time.Duration(0), ""
	cmd := &cobra.Command{
		Use: "create", Short: "Make a token for muxes, hosts or managers to join with", Args: cobra.NoArgs,
		Long: `Make a token for muxes, hosts or managers to join with. Its text is told once. It goes into a file that
only root may read, named by --token-file; the hash of the cluster's CA is for --ca-hash.`,
		Example: `  weir token create --role mux --ttl 1h
  weir token create --role agent --uses 40 --write token
  weir token create --role agent --name host7 --addresses 10.2.7.1/32,2001:db8:2:7::/64`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			request.Ttl = durationpb.New(life)
			return s.call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				made, err := client.CreateToken(ctx, request)
				if err != nil {
					return fmt.Errorf("create token: %w", err)
				}
				text := made.GetText()
				if file != "" {
					if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
						return fmt.Errorf("write the token: %w", err)
					}
					text = "in " + file
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "token    %s\nca-hash  %s\nexpires  %s\n",
					text, made.GetCaHash(), made.GetToken().GetExpires().AsTime().Format(time.RFC3339))
				return err
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&request.Role, "role", "", "`role` of those that join: mux, agent or manager")
	flags.StringVar(&request.Name, "name", "", "the only `name` that the token is good for; also one that joined before")
	flags.DurationVar(&life, "ttl", trust.DefaultTokenLife, "how long the token is good for")
	flags.Uint32Var(&request.Uses, "uses", 1, "how many nodes may join with it")
	flags.StringSliceVar(&request.Addresses, "addresses", nil, "`prefixes` that the addresses of those that join must lie in; left out: any that nobody else has")
	flags.StringVar(&file, "write", "", "`file` to write the token to, instead of telling it")
	return cmd
}

func (s *session) listTokensCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List tokens, without their texts", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				response, err := client.ListTokens(ctx, &weirv1.ListTokensRequest{})
				if err != nil {
					return fmt.Errorf("list tokens: %w", err)
				}
				rows := newColumns("", "There are no tokens.", "ID", "ROLE", "NAME", "USED", "EXPIRES", "BY", "ADDRESSES")
				for _, t := range response.GetTokens() {
					rows.add(t.GetId(), t.GetRole(), t.GetName(), fmt.Sprintf("%d/%d", t.GetUsed(), t.GetUses()),
						t.GetExpires().AsTime().Format(time.RFC3339), t.GetBy(), cmp.Or(strings.Join(t.GetAddresses(), ","), "any"))
				}
				return s.print(cmd.OutOrStdout(), messages(response.GetTokens()), rows.write)
			})
		},
	}
	s.outputFlag(cmd)
	return cmd
}

func (s *session) deleteTokenCommand() *cobra.Command {
	return &cobra.Command{
		Use: "delete ID", Short: "Take a token back", Args: arguments(1, 1, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				if _, err := client.DeleteToken(ctx, &weirv1.DeleteTokenRequest{Id: args[0]}); err != nil {
					return fmt.Errorf("delete token %s: %w", args[0], err)
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "token %s deleted\n", args[0])
				return err
			})
		},
	}
}

func revokeCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use: "revoke ROLE NAME", Short: "End all certificates of a mux, agent, manager or user, and its open streams",
		Args: arguments(2, 2, "ROLE NAME"), Example: "  weir revoke mux mux7",
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				if _, err := client.RevokePrincipal(ctx, &weirv1.RevokePrincipalRequest{Role: args[0], Name: args[1]}); err != nil {
					return fmt.Errorf("revoke %s %s: %w", args[0], args[1], err)
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s revoked\n", args[0], args[1])
				return err
			})
		},
	}
}

func auditCommand(s *session) *cobra.Command {
	request := &weirv1.ListAuditRequest{}
	var since time.Duration
	cmd := &cobra.Command{
		Use: "audit", Short: "List what was changed and what was refused, the newest first", Args: cobra.NoArgs,
		Example: "  weir audit --since 1h --identity user/alice\n  weir audit --subject vip/shop",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if since > 0 {
				request.Since = timestamppb.New(time.Now().Add(-since))
			}
			return s.call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				response, err := client.ListAudit(ctx, request)
				if err != nil {
					return fmt.Errorf("list the audit log: %w", err)
				}
				rows := newColumns("", "There is nothing in the audit log.", "TIME", "WHO", "FROM", "WHAT", "SUBJECT", "RESULT", "REASON")
				for _, e := range response.GetEntries() {
					rows.add(e.GetTime().AsTime().Format(time.RFC3339), e.GetIdentity(), e.GetFrom(), e.GetProcedure(), e.GetSubject(), e.GetResult(), e.GetReason())
				}
				return s.print(cmd.OutOrStdout(), messages(response.GetEntries()), rows.write)
			})
		},
	}
	cmd.Flags().Uint32Var(&request.Limit, "limit", 100, "how many entries at most")
	cmd.Flags().BoolVar(&request.Refused, "refused", false, "only what was refused")
	cmd.Flags().StringVar(&request.Identity, "identity", "", "only what this one did: user/alice, host/h1, mux/mux1")
	cmd.Flags().StringVar(&request.Subject, "subject", "", "only what was about this: vip/shop, tenant/acme")
	cmd.Flags().DurationVar(&since, "since", 0, "only what is not older than this")
	s.outputFlag(cmd)
	return cmd
}
