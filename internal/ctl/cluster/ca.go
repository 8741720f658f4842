package cluster

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/cluster"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/etcd"
)

// CACommand returns the command ca.
func CACommand() *cobra.Command {
	cmd := &cobra.Command{Use: "ca", Short: "Replace the CA of a cluster on an external etcd"}
	session.Group(cmd)
	cmd.AddCommand(rotateCACommand())
	return cmd
}

func rotateCACommand() *cobra.Command {
	var cfg etcd.Config
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Have the managers on an external etcd make another CA",
		Long: `Take the CA out of an external etcd, while no manager runs. The first manager that is started
then, with an empty data directory, makes another. No certificate and no join token from
before is good any more: managers, hosts and muxes join with new tokens. What users have
configured and their bearer tokens stay. With the embedded etcd: weir restore --rotate-ca.`,
		Example: `  weir ca rotate --etcd-endpoints https://etcd1:2379 --etcd-ca-file /etc/etcd/ca.pem`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), restoreTime)
			defer cancel()
			cfg.Log = slog.New(slog.DiscardHandler)
			if err := cluster.ForgetCA(ctx, cfg); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(),
				"the CA is forgotten: start one manager with an empty --data-dir, and have all others join it")
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&cfg.Endpoints, "etcd-endpoints", nil,
		"URLs of the external etcd, separated by commas (required)")
	cfg.TLS.Flags(cmd.Flags())
	return cmd
}
