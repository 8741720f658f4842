package get

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/ctl/session"
)

// Command returns the command get.
func Command(s *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get",
		Short: "List VIPs, address pools, prefix lists, networks, fabrics, tenants, events, nodes or switches, a line each",
		Example: `  weir get vips
  weir get vips -l team=web --watch
  weir get pools
  weir get events --vip shop
  weir get nodes --role mux
  weir get vip shop -o yaml > shop.yaml`,
	}
	session.Group(cmd)
	cmd.AddCommand(vipsCommand(s), poolsCommand(s), prefixListsCommand(s), networksCommand(s), overlayCommand(s), fabricsCommand(s),
		tenantsCommand(s), eventsCommand(s), nodesCommand(s), switchesCommand(s), managersCommand(s))
	return cmd
}

// selectorFlag adds -l to cmd.
func selectorFlag(cmd *cobra.Command, labels *string) {
	cmd.Flags().StringVarP(labels, "selector", "l", "",
		"only those whose labels fit the `selector`, as app=shop,tier!=test,zone in (a,b)")
}

// watchEnded is nil if the user ended the watch.
func watchEnded(cmd *cobra.Command, what string, err error) error {
	if cmd.Context().Err() != nil {
		return nil
	}
	if err == nil {
		err = errors.New("the manager ended it: try again")
	}
	return fmt.Errorf("%s: %w", what, err)
}
