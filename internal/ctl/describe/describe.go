package describe

import (
	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/ctl/session"
)

// Command returns the command describe.
func Command(s *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe",
		Short: "Show all there is to know of a VIP, a virtual network, a node, a tenant or a fabric",
	}
	session.Group(cmd)
	cmd.AddCommand(vipCommand(s), networkCommand(s), nodeCommand(s), tenantCommand(s), fabricCommand(s))
	return cmd
}
