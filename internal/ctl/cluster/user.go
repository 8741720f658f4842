package cluster

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/output"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// UserCommand returns the command delete.
func UserCommand(s *session.Session) *cobra.Command {
	remove := &cobra.Command{
		Use: "delete NAME", Short: "End a user and its credentials", Args: session.Arguments(1, 1, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				if _, err := client.DeleteUser(ctx, &weirv1.DeleteUserRequest{Name: args[0]}); err != nil {
					return fmt.Errorf("delete user %s: %w", args[0], err)
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "user %s deleted\n", args[0])
				return err
			})
		},
	}
	cmd := &cobra.Command{Use: "user", Short: "Make users, give them other credentials, list and delete them"}
	session.Group(cmd)
	cmd.AddCommand(createUserCommand(s), rotateUserCommand(s), listUsersCommand(s), remove)
	return cmd
}

// credentials are the flags that say what a user gets to prove itself by.
type credentials struct {
	certificate bool
	file        string
	key         trust.Key
	config      rpc.Config // that is written, but for what managers make
}

func (c *credentials) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.certificate, "certificate", false,
		"a certificate for a year instead of a bearer token; with --write")
	cmd.Flags().StringVar(&c.file, "write", "",
		"`file` to write a configuration to, for --config of the user, instead of telling the token")
}

// request makes a key and asks for its certificate, if that is what the user gets. It holds that the file can be written:
// nobody has the credentials later.
func (c *credentials) request(cmd *cobra.Command) (request []byte, err error) {
	if c.certificate && c.file == "" {
		return nil, session.NewUsageError(cmd, errors.New("--certificate needs --write, for the certificate and its key"))
	}
	if c.file != "" {
		if err := trust.CanWriteFile(c.file); err != nil {
			return nil, fmt.Errorf("%w; nothing was changed", err)
		}
	}
	if !c.certificate {
		return nil, nil
	}
	if c.key, err = trust.NewKey(); err != nil {
		return nil, err
	}
	return c.key.Request(nil, nil)
}

// reach fills in by which managers the user reaches the cluster, whichever of them is away. It is asked before the credentials
// of who asks may be void.
func (c *credentials) reach(ctx context.Context, s *session.Session, client *rpc.Client) error {
	if c.file == "" {
		return nil
	}
	access, err := s.Access()
	if err != nil {
		return err
	}
	c.config.Managers = strings.Split(access.Managers, ",")
	if all, err := client.ListManagers(ctx, &weirv1.ListManagersRequest{}); err == nil {
		for _, m := range all.GetManagers() {
			c.config.AddManagers(m.GetAddress())
		}
	}
	return nil
}

// write writes what the managers made, or prints the token.
func (c *credentials) write(cmd *cobra.Command, token string, certificate, ca []byte) error {
	if c.file == "" {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), token)
		return err
	}
	authority, err := x509.ParseCertificate(ca)
	if err != nil {
		return fmt.Errorf("read the CA: %w", err)
	}
	config := c.config
	config.CA, config.Token = string(trust.EncodeCertificate(authority)), token
	if c.certificate {
		signed, err := x509.ParseCertificate(certificate)
		if err != nil {
			return fmt.Errorf("read the certificate: %w", err)
		}
		credential, err := c.key.Credential(signed, authority)
		if err != nil {
			return err
		}
		key, err := credential.KeyPEM()
		if err != nil {
			return err
		}
		config.Certificate, config.Key = string(credential.CertificatePEM()), string(key)
	}
	text, err := config.Encode()
	if err != nil {
		return err
	}
	if err := trust.WriteFile(c.file, text); err != nil {
		_, printed := fmt.Fprintf(cmd.OutOrStdout(), "%s", text)
		return errors.Join(fmt.Errorf("%w: what it was to have is printed instead, and nobody else has it: keep it", err), printed)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "written to %s\n", c.file)
	return err
}

func createUserCommand(s *session.Session) *cobra.Command {
	var role, tenant string
	var given credentials
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Make a user with a role in a tenant, and tell its bearer token once",
		Args: session.Arguments(1, 1, "NAME"),
		Example: `  weir user create alice --role operator --tenant shop
  weir user create bob --role admin --tenant '*' --certificate --write bob.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := given.request(cmd)
			if err != nil {
				return err
			}
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				if err := given.reach(ctx, s, client); err != nil {
					return err
				}
				made, err := client.CreateUser(ctx, &weirv1.CreateUserRequest{Request: request, User: &weirv1.User{
					Name: args[0], Bindings: []*weirv1.Binding{{Tenant: tenant, Role: role}},
				}})
				if err != nil {
					return fmt.Errorf("create user %s: %w", args[0], err)
				}
				return given.write(cmd, made.GetToken(), made.GetCertificate(), made.GetCa())
			})
		},
	}
	cmd.Flags().StringVar(&role, "role", string(trust.Viewer), "what the user may do: viewer, operator or admin")
	cmd.Flags().StringVar(&tenant, "tenant", "", "`tenant` where it may do it, or * for all")
	given.flags(cmd)
	return cmd
}

func rotateUserCommand(s *session.Session) *cobra.Command {
	var given credentials
	cmd := &cobra.Command{
		Use: "rotate NAME", Short: "Give a user other credentials; those that it had are void at once",
		Args: session.Arguments(1, 1, "NAME"),
		Example: `  weir user rotate alice
  weir user rotate admin --certificate --write admin.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := given.request(cmd)
			if err != nil {
				return err
			}
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				if err := given.reach(ctx, s, client); err != nil {
					return err
				}
				made, err := client.RotateUser(ctx, &weirv1.RotateUserRequest{Name: args[0], Request: request})
				if err != nil {
					return fmt.Errorf("rotate user %s: %w", args[0], err)
				}
				return given.write(cmd, made.GetToken(), made.GetCertificate(), made.GetCa())
			})
		},
	}
	given.flags(cmd)
	return cmd
}

func listUsersCommand(s *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List users, what they may do, and how they prove who they are", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				users, err := session.ListUsers(ctx, client)
				if err != nil {
					return fmt.Errorf("list users: %w", err)
				}
				return s.Output.Print(cmd.OutOrStdout(), output.Messages(users), table.Users(users).Write)
			})
		},
	}
	s.Output.AddFlag(cmd, output.FormatName)
	return cmd
}
