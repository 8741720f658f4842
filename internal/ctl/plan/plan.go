package plan

import (
	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/ctl/session"
)

// Command returns the command plan.
func Command(s *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Plan with a model of the network and of traffic",
		Long: `Plan with a model of a data center's network and of its traffic. No manager is asked, but
by record.

The network is a manifest of the kind Fabric; without one, it is that of the simulation
in the paper on Duet: 40 containers of 40 racks, 40 cores. The traffic is a trace, or
generated.`,
	}
	session.Group(cmd)
	cmd.AddCommand(
		trafficCommand(s), recordCommand(s), capacityCommand(s), simulateCommand(s), explainCommand(s), figuresCommand(s),
	)
	return cmd
}
