package cluster

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/output"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// TokenCommand returns the command token.
func TokenCommand(s *session.Session) *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Make, list and delete the tokens that nodes join with"}
	session.Group(cmd)
	cmd.AddCommand(createTokenCommand(s), listTokensCommand(s), deleteTokenCommand(s))
	return cmd
}

func createTokenCommand(s *session.Session) *cobra.Command {
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
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
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
	flags.StringVar(&request.Role, "role", "", "`role` of those that join: mux, agent, switch or manager")
	flags.StringVar(&request.Name, "name", "", "the only `name` that the token is good for; also one that joined before")
	flags.DurationVar(&life, "ttl", trust.DefaultTokenLife, "how long the token is good for")
	flags.Uint32Var(&request.Uses, "uses", 1, "how many nodes may join with it")
	flags.StringSliceVar(&request.Addresses, "addresses", nil,
		"`prefixes` that the addresses of those that join must lie in; left out: any that nobody else has")
	flags.StringVar(&file, "write", "", "`file` to write the token to, instead of telling it")
	return cmd
}

func listTokensCommand(s *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List tokens, without their texts", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				response, err := client.ListTokens(ctx, &weirv1.ListTokensRequest{})
				if err != nil {
					return fmt.Errorf("list tokens: %w", err)
				}
				tokens := response.GetTokens()
				return s.Output.Print(cmd.OutOrStdout(), output.Messages(tokens), table.Tokens(tokens).Write)
			})
		},
	}
	s.Output.AddFlag(cmd)
	return cmd
}

func deleteTokenCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "delete ID", Short: "Take a token back", Args: session.Arguments(1, 1, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				if _, err := client.DeleteToken(ctx, &weirv1.DeleteTokenRequest{Id: args[0]}); err != nil {
					return fmt.Errorf("delete token %s: %w", args[0], err)
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "token %s deleted\n", args[0])
				return err
			})
		},
	}
}
