// Command weir-switch has a switch serve as a mux: it programs VIPs into the switch's tables, and announces them to the
// switch's own router.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/daemon"
	"github.com/weirlb/weir/internal/switchd"
)

func main() { os.Exit(daemon.Run(command())) }

func command() *cobra.Command {
	var options switchd.Options
	var logging daemon.Logging
	cmd := &cobra.Command{
		Use:   "weir-switch",
		Short: "Program VIPs into a switch's tables and announce them to its router by BGP",
		Long: `Program VIPs into a switch's tables and announce them to its router by BGP.

SIGTERM and SIGINT stop cleanly: routes are withdrawn; the entries stay, and attract nothing.
SIGUSR2 hands over: the router keeps the routes for the next weir-switch. So does a crash.
To remove the entries after a stop: weir-switch unload.`,
		Example: `  weir-switch --manager https://10.0.0.5:7400 --name sw1 --driver linux --source6 2001:db8:f::1 \
    --vip-prefixes 203.0.113.0/24 --peer address=192.0.2.1,as=65001 --as 65001 --router-id 10.255.1.2 --next-hop4 192.0.2.2`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logging.Logger()
			if err != nil {
				return err
			}
			return switchd.Serve(cmd.Context(), options, log)
		},
	}
	options.Flags(cmd)
	logging.Flags(cmd)

	unload := daemon.UnloadCommand("Remove the VIPs' entries from the switch; stop weir-switch first", func() error { return switchd.Unload(options) })
	cmd.AddCommand(daemon.StatusCommand(func() (switchd.Status, error) { return switchd.ReadStatus(options) }), unload)
	daemon.ConfigFlag(cmd)
	return cmd
}
