// Command weir-manager is the control plane of Weir: API, desired state, tables, streams.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/controller/keyring"
	"github.com/weirlb/weir/internal/daemon"
	"github.com/weirlb/weir/internal/manager"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/telemetry"
	"github.com/weirlb/weir/internal/trust"
)

func main() { os.Exit(daemon.Run(command())) }

func command() *cobra.Command {
	var logging daemon.Logging
	cfg := manager.Config{Version: daemon.Version}
	cmd := &cobra.Command{
		Use:   "weir-manager",
		Short: "Run the control plane of Weir",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logging.Logger()
			if err != nil {
				return err
			}
			cfg.Log = log
			defer daemon.TuneGC()()
			m, err := manager.New(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			defer m.Close()
			daemon.Ready(log)
			return m.Run(cmd.Context())
		},
	}
	logging.Flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&cfg.Listen, "listen", "127.0.0.1:"+rpc.DefaultPort, "address of the API: gRPC, Connect and REST on one port")
	flags.StringVar(&cfg.Name, "name", "manager", "name of this manager among the replicas, a DNS label")
	flags.StringVar(&cfg.Advertise, "advertise", "", "host:port at which other managers reach the API (default: --listen)")
	flags.StringVar(&cfg.PeerListen, "peer-listen", "", "host:port for the embedded etcd of the other managers (default: this manager is the only one)")
	flags.StringVar(&cfg.Join, "join", "", "manager of the cluster to join at the first start (default: found one)")
	flags.StringVar(&cfg.TokenFile, "token-file", "", "file with the token to join with")
	flags.StringVar(&cfg.CAHash, "ca-hash", "", "hash of the CA of the cluster to join, as weir token create prints it")
	flags.BoolVar(&cfg.Insecure, "insecure", false, "neither TLS nor authentication: everybody who reaches the API may do everything")
	flags.DurationVar(&cfg.CertificateLife, "certificate-life", trust.NodeLife, "how long certificates of nodes live; they renew them after two thirds")
	flags.DurationVar(&cfg.KeyInterval, "fastpath-key-interval", keyring.DefaultKeyInterval, "how long a key of Fastpath signs; at least "+keyring.MinKeyInterval.String())
	flags.StringVar(&cfg.DataDir, "data-dir", "/var/lib/weir", "directory of the embedded etcd")
	cfg.PartFlags(flags)
	cfg.Telemetry.Flags(flags, telemetry.ManagerListen)
	cmd.AddCommand(adminReset(&cfg))
	daemon.ConfigFlag(cmd)
	return cmd
}
