// Command weir-agent serves a host: it delivers what the muxes send to the host's workloads, sends
// their replies straight to the clients, and checks their health.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/agentd"
	"github.com/weirlb/weir/internal/daemon"
)

func main() { os.Exit(daemon.Run(command())) }

func command() *cobra.Command {
	var options agentd.Options
	var logging daemon.Logging
	cmd := &cobra.Command{
		Use:   "weir-agent",
		Short: "Deliver packets of VIPs to this host's workloads and check their health",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logging.Logger()
			if err != nil {
				return err
			}
			return agentd.Serve(cmd.Context(), options, log)
		},
	}
	options.Flags(cmd)
	logging.Flags(cmd)

	cmd.AddCommand(
		daemon.StatusCommand(func() (agentd.Status, error) { return agentd.ReadStatus(options.PinPath) }),
		daemon.UnloadCommand("Stop and remove the data plane: connections of VIPs to this host end", func() error { return agentd.Unload(options.PinPath) }),
	)
	cmd.AddCommand(agentd.NetworkCommands(&options)...)
	daemon.ConfigFlag(cmd)
	return cmd
}
