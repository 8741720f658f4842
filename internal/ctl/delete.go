package ctl

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/manifest"
	"github.com/weirlb/weir/internal/rpc"
)

func deleteCommand(s *session) *cobra.Command {
	var files []string
	var wait waiting
	cmd := &cobra.Command{
		Use:   "delete",
		Short: "Delete VIPs, address pools, prefix lists and tenants, or forget nodes",
		Long: `Delete VIPs, address pools, prefix lists and tenants, or forget nodes that are gone
for good.

With -f, delete the VIPs that manifests describe, then their prefix lists, then their
pools, then their tenants.`,
		Example: `  weir delete vip shop
  weir delete -f shop.yaml
  weir delete node mux7`,
	}
	group(cmd)
	tell := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 || len(files) == 0 {
			return tell(cmd, args)
		}
		resources, err := readManifests(cmd, files)
		if err != nil {
			return err
		}
		names := map[string][]string{}
		for _, r := range resources {
			names[r.Kind()] = append(names[r.Kind()], r.Name())
		}
		if err := s.deleteVIPs(cmd, names[manifest.Kind], wait); err != nil {
			return err
		}
		if err := s.deletePrefixLists(cmd, names[manifest.KindPrefixList]); err != nil {
			return err
		}
		if err := s.deletePools(cmd, names[manifest.KindPool]); err != nil {
			return err
		}
		return s.deleteTenants(cmd, names[manifest.KindTenant])
	}
	fileFlag(cmd, &files, "`file` or folder of manifests, - for standard input; may be repeated")
	wait.flags(cmd)
	cmd.AddCommand(s.deleteVIPCommand(), s.deleteNodeCommand(), s.deleteManagerCommand(), s.deletePoolCommand(), s.deletePrefixListCommand(), s.deleteTenantCommand())
	return cmd
}

func (s *session) deleteVIPCommand() *cobra.Command {
	var wait waiting
	cmd := &cobra.Command{
		Use:               "vip NAME...",
		Short:             "Delete VIPs: the muxes withdraw their routes and forget them",
		Args:              arguments(1, maxNames, "NAME..."),
		ValidArgsFunction: s.complete(maxNames, vipNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.deleteVIPs(cmd, args, wait)
		},
	}
	wait.flags(cmd)
	return cmd
}

// maxNames bounds the names that a command takes.
const maxNames = 10000

// deleteVIPs deletes each one, whatever becomes of the others.
func (s *session) deleteVIPs(cmd *cobra.Command, names []string, wait waiting) error {
	var generation uint64
	err := s.deleteEach(cmd, "vip", names, func(ctx context.Context, client *rpc.Client, name string) error {
		response, err := client.DeleteVIP(ctx, &weirv1.DeleteVIPRequest{Name: name})
		generation = max(generation, response.GetGeneration())
		return err
	})
	if err != nil {
		return err
	}
	return s.wait(cmd, wait, generation)
}

func (s *session) deleteNodeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "node NAME",
		Short: "Forget a mux or host that is gone for good",
		Long: `Forget a mux or host that is gone for good. It is refused while the node is connected
or backends live on it. A node that comes back registers anew.`,
		Args:              arguments(1, 1, "NAME"),
		ValidArgsFunction: s.complete(1, nodeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := s.call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				_, err := client.DeleteNode(ctx, &weirv1.DeleteNodeRequest{Name: args[0]})
				return err
			})
			if err != nil {
				return fmt.Errorf("delete node %s: %w", args[0], err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "node %s deleted\n", args[0])
			return nil
		},
	}
}

// deleteCommand deletes what the names of a kind stand for, of which list knows all.
func (s *session) deleteCommand(kind, short string, list func(context.Context, *rpc.Client) ([]string, error), remove func(*cobra.Command, []string) error) *cobra.Command {
	return &cobra.Command{
		Use:               kind + " NAME...",
		Short:             short,
		Args:              arguments(1, maxNames, "NAME..."),
		ValidArgsFunction: s.complete(maxNames, list),
		RunE:              remove,
	}
}

// deleteEach deletes what the names of a kind stand for, one after the other, whatever becomes of the others.
func (s *session) deleteEach(cmd *cobra.Command, kind string, names []string, remove func(context.Context, *rpc.Client, string) error) error {
	var errs []error
	for _, name := range names {
		err := s.call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error { return remove(ctx, client, name) })
		if err != nil {
			errs = append(errs, fmt.Errorf("delete %s %s: %w", kind, name, err))
			continue
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s %s deleted\n", kind, name)
	}
	return errors.Join(errs...)
}
