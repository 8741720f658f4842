package uiproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/rpc"
)

// Command returns the command ui.
func Command(s *session.Session) *cobra.Command {
	var port uint16
	open := true
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Open the web page of the managers",
		Long: `Open the web page of the managers, as the user of your configuration: the browser needs
neither the cluster's CA nor a certificate or token of yours. This program listens on
loopback alone, prints an address that is good for one browser, and sends what the page
asks for to a manager, the next one when that is lost. It ends with Ctrl-C, or when a
user with a bearer token signs out in the page; users with a certificate have no session to
sign out of.`,
		Example: `  weir ui
  weir ui --open=false --port 7480`,
		Args:              session.Arguments(0, 0, ""),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return run(cmd, s, port, open) },
	}
	cmd.Flags().Uint16Var(&port, "port", 0, "`number` of the port on loopback (default: one that is free)")
	cmd.Flags().BoolVar(&open, "open", open, "open a browser, if there is a display")
	return cmd
}

func run(cmd *cobra.Command, s *session.Session, port uint16, open bool) error {
	access, err := s.Access()
	if err != nil {
		return err
	}
	base, by, err := access.Transport()
	if err != nil {
		return err
	}
	// What is wrong with the configuration is said here, and not by the page.
	var caller *weirv1.WhoAmIResponse
	err = s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) (err error) {
		caller, err = client.WhoAmI(ctx, &weirv1.WhoAmIRequest{})
		return err
	})
	if err != nil {
		return fmt.Errorf("open the web page: %w", err)
	}
	listeners, err := listen(cmd.Context(), port)
	if err != nil {
		return err
	}
	g := newGate()
	p := newProxy(g, base, by, cmd.ErrOrStderr())
	address := fmt.Sprintf("http://%s:%d%s%s", g.name, listeners[0].Addr().(*net.TCPAddr).Port, openPath, g.secret)
	fmt.Fprintf(cmd.OutOrStdout(), "%s\n", address)
	fmt.Fprintf(cmd.ErrOrStderr(), "The web page, as %s. The address is good for one browser; Ctrl-C ends it.\n", caller.GetIdentity())
	if open {
		file, err := openBrowser(address, os.Getenv)
		if err != nil && !errors.Is(err, errNoDisplay) {
			fmt.Fprintf(cmd.ErrOrStderr(), "weir: %v: open the address yourself\n", err)
		}
		if file != "" {
			p.opened = func() { os.Remove(file) }
			defer os.Remove(file)
		}
	}
	return p.serve(cmd.Context(), listeners)
}
