// Command weir-mux is one mux of a pool: it receives packets for VIPs, sends each to a backend's
// host, and announces the VIPs to the routers.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/daemon"
	"github.com/weirlb/weir/internal/muxd"
	"github.com/weirlb/weir/internal/muxd/status"
)

func main() { os.Exit(daemon.Run(command())) }

func command() *cobra.Command {
	var options muxd.Options
	var logging daemon.Logging
	cmd := &cobra.Command{
		Use:   "weir-mux",
		Short: "Forward packets for VIPs to their backends' hosts and announce the VIPs by BGP",
		Long: `Forward packets for VIPs to their backends' hosts and announce the VIPs by BGP.

SIGTERM and SIGINT stop cleanly: routes are withdrawn, traffic drains, forwarding ends.
SIGUSR2 hands over: forwarding goes on and routers keep the routes for the next weir-mux.
So does a crash. To end forwarding for good afterwards: weir-mux unload.`,
		Example: `  weir-mux --manager https://10.0.0.5:7400 --interface eth0 --as 65010 \
    --peer address=10.0.0.1,as=65000,password-file=/etc/weir/bgp-password,bfd=100ms`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logging.Logger()
			if err != nil {
				return err
			}
			return muxd.Serve(cmd.Context(), options, log)
		},
	}
	options.Flags(cmd)
	logging.Flags(cmd)

	cmd.AddCommand(
		daemon.StatusCommand(func() (status.Status, error) { return status.Read(options.PinPath) }),
		daemon.UnloadCommand("Stop and remove the data plane: forwarding ends", func() error { return muxd.Unload(options.PinPath) }),
	)
	daemon.ConfigFlag(cmd)
	return cmd
}
