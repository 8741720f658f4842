package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/manager"
	"github.com/weirlb/weir/internal/manager/pki"
)

// adminReset is the way back in for whoever has a manager's data directory, and no admin's credential.
func adminReset(cfg *manager.Config) *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use: "admin-reset", Args: cobra.NoArgs,
		Short: "Have the manager of a data directory give the user admin new credentials when it starts next",
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir := cmp.Or(dataDir, cfg.DataDir)
			if err := pki.RequestAdminReset(dir); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "The manager resets the user admin when it starts next, and writes %s.\n", pki.AdminFile(dir))
			return nil
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "data directory of a manager that is stopped (default: that of its configuration)")
	return cmd
}
