package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/join"
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
	var set []string
	cloudInit := false
	cmd := &cobra.Command{
		Use: "create", Short: "Make a token for muxes, hosts or managers to join with", Args: cobra.NoArgs,
		Long: `Make a token for muxes, hosts or managers to join with, and print the line to run on the
node, which has the packages weir and that of the role. The token is told once.

With --cloud-init, print user data for cloud-init instead. User data is read by whoever
reaches a machine's metadata service: make such tokens for few uses and a short time.`,
		Example: `  weir token create --role mux --set as=65010 --set peer=address=10.0.0.1,as=65000,bfd=100ms
  weir token create --role agent --uses 40 --write token
  weir token create --role agent --ttl 30m --cloud-init >user-data
  weir token create --role agent --name host7 --addresses 10.2.7.1/32,2001:db8:2:7::/64`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cloudInit && file != "" {
				return session.NewUsageError(cmd, errors.New("--cloud-init has the token in what it prints: leave --write out"))
			}
			if err := join.CheckSet(set); err != nil {
				return session.NewUsageError(cmd, err)
			}
			request.Ttl = durationpb.New(life)
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				managers, err := managerURLs(ctx, s, cmd, client)
				if err != nil {
					return err
				}
				made, err := createToken(ctx, client, request, file)
				if err != nil {
					return err
				}
				line := join.Line{
					Role: request.GetRole(), Managers: managers, CAHash: made.GetCaHash(), Name: request.GetName(),
					Set: set, Token: made.GetText(), Expires: made.GetToken().GetExpires().AsTime(), Uses: made.GetToken().GetUses(),
				}
				if cloudInit {
					_, err := io.WriteString(cmd.OutOrStdout(), line.CloudInit())
					return err
				}
				return tellToken(cmd.OutOrStdout(), line, file)
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
	flags.StringVar(&file, "write", "", "new `file` to write the token to, instead of telling it")
	flags.StringArrayVar(&set, "set", nil, "`KEY=VALUE` of the daemon's configuration, for the line; repeatable")
	flags.BoolVar(&cloudInit, "cloud-init", false, "print user data for cloud-init")
	return cmd
}

// tokenFile is what a token is written to. It is made before the token, which is told but once.
type tokenFile struct{ file *os.File }

// newTokenFile makes a file that only its owner may read. One that is there has readers of its own, or is a link.
func newTokenFile(path string) (*tokenFile, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s is there already: remove it, or name another file; no token was made", path)
	}
	if err != nil {
		return nil, fmt.Errorf("write the token: %w; none was made", err)
	}
	return &tokenFile{file}, nil
}

// discard removes the file of a token that was not made.
func (f *tokenFile) discard() error { return errors.Join(f.file.Close(), os.Remove(f.file.Name())) }

// write writes the token.
func (f *tokenFile) write(made *weirv1.CreateTokenResponse) error {
	_, err := f.file.WriteString(made.GetText() + "\n")
	if err = errors.Join(err, f.file.Sync(), f.file.Close()); err != nil {
		return fmt.Errorf("write the token: %w: nobody has it now: weir token delete %s, and make another", err, made.GetToken().GetId())
	}
	return nil
}

// createToken makes a token, and writes it to a file if there is to be one.
func createToken(
	ctx context.Context, client *rpc.Client, request *weirv1.CreateTokenRequest, path string,
) (*weirv1.CreateTokenResponse, error) {
	if path == "" {
		made, err := client.CreateToken(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("create token: %w", err)
		}
		return made, nil
	}
	file, err := newTokenFile(path)
	if err != nil {
		return nil, err
	}
	made, err := client.CreateToken(ctx, request)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create token: %w", err), file.discard())
	}
	return made, file.write(made)
}

// tellToken prints what was made and the line for the node. The token is told unless it is in a file.
func tellToken(w io.Writer, line join.Line, file string) error {
	text := line.Token
	if file != "" {
		text, line.File = "in "+file, filepath.Base(file)
	}
	_, err := fmt.Fprintf(w, "token    %s\nca-hash  %s\nexpires  %s\n\non the node, with the packages weir and weir-%s:\n  %s\n",
		text, line.CAHash, line.Expires.Format(time.RFC3339), line.Role, line.Shell())
	return err
}

// managerURLs are the managers as nodes reach them: those of the cluster that say at which address, else those that
// this command calls. Addresses of loopback are warned of.
func managerURLs(ctx context.Context, s *session.Session, cmd *cobra.Command, client *rpc.Client) (string, error) {
	var reached rpc.Config
	if response, err := client.ListManagers(ctx, &weirv1.ListManagersRequest{}); err == nil {
		for _, m := range response.GetManagers() {
			reached.AddManagers(m.GetAddress())
		}
	}
	if len(reached.Managers) == 0 {
		access, err := s.Access()
		if err != nil {
			return "", err
		}
		reached.Managers = strings.Split(access.Managers, ",")
	}
	for _, m := range reached.Managers {
		if isLoopback(m) {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: the manager of %s listens on loopback, or tells no other address, and no other machine "+
				"reaches that: set listen in its configuration, and advertise if it listens at all addresses\n", m)
		}
	}
	return strings.Join(reached.Managers, ","), nil
}

// isLoopback says whether a manager's URL leads to the machine itself, wherever it is used.
func isLoopback(manager string) bool {
	if !strings.Contains(manager, "://") {
		manager = "//" + manager
	}
	u, err := url.Parse(strings.TrimSpace(manager))
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && address.Unmap().IsLoopback()
}

func listTokensCommand(s *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List tokens, without their texts", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				tokens, err := session.ListTokens(ctx, client)
				if err != nil {
					return fmt.Errorf("list tokens: %w", err)
				}
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
