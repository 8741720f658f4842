package change

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/manifestfile"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/manifest"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/rpc"
)

// DeleteCommand returns the command delete.
func DeleteCommand(s *session.Session) *cobra.Command {
	var files []string
	var wait waiting
	cmd := &cobra.Command{
		Use:   "delete",
		Short: "Delete VIPs, pools, prefix lists, networks, the fabric and tenants, or forget nodes",
		Long: `Delete VIPs, address pools, prefix lists, virtual networks and tenants, or forget nodes
that are gone for good.

With -f, delete the VIPs that manifests describe, then their virtual networks and the
overlay, then their prefix lists, then their pools, then the fabric and their tenants.`,
		Example: `  weir delete vip shop
  weir delete -f shop.yaml
  weir delete node mux7`,
	}
	session.Group(cmd)
	tell := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 || len(files) == 0 {
			return tell(cmd, args)
		}
		resources, err := manifestfile.Read(cmd, files)
		if err != nil {
			return err
		}
		names := map[string][]string{}
		for _, r := range resources {
			names[r.Kind()] = append(names[r.Kind()], r.Name())
		}
		if err := deleteVIPs(s, cmd, names[manifest.Kind], wait); err != nil {
			return err
		}
		if err := deleteEach(s, cmd, network, names[manifest.KindNetwork]); err != nil {
			return err
		}
		if err := deleteEach(s, cmd, overlay, names[manifest.KindOverlay]); err != nil {
			return err
		}
		if err := deleteEach(s, cmd, prefixList, names[manifest.KindPrefixList]); err != nil {
			return err
		}
		if err := deleteEach(s, cmd, pool, names[manifest.KindPool]); err != nil {
			return err
		}
		if err := deleteEach(s, cmd, fabric, names[manifest.KindFabric]); err != nil {
			return err
		}
		return deleteEach(s, cmd, tenant, names[manifest.KindTenant])
	}
	manifestfile.AddFlag(cmd, &files, "`file` or folder of manifests, - for standard input; may be repeated")
	wait.flags(cmd)
	cmd.AddCommand(deleteVIPCommand(s))
	for _, k := range []kind{node, manager, pool, prefixList, network, overlay, fabric, tenant} {
		cmd.AddCommand(k.deleteCommand(s))
	}
	return cmd
}

func deleteVIPCommand(s *session.Session) *cobra.Command {
	var wait waiting
	cmd := &cobra.Command{
		Use:               "vip NAME...",
		Short:             "Delete VIPs: the muxes withdraw their routes and forget them",
		Args:              session.Arguments(1, session.MaxNames, "NAME..."),
		ValidArgsFunction: s.Complete(session.MaxNames, session.VIPNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return deleteVIPs(s, cmd, args, wait)
		},
	}
	wait.flags(cmd)
	return cmd
}

// deleteVIPs deletes each one, whatever becomes of the others.
func deleteVIPs(s *session.Session, cmd *cobra.Command, names []string, wait waiting) error {
	var generation uint64
	vip := kind{name: "vip", remove: func(ctx context.Context, client *rpc.Client, name string) error {
		response, err := client.DeleteVIP(ctx, &weirv1.DeleteVIPRequest{Name: name})
		generation = max(generation, response.GetGeneration())
		return err
	}}
	if err := deleteEach(s, cmd, vip, names); err != nil {
		return err
	}
	return wait.forMuxes(s, cmd, generation)
}

// kind is a kind of resource that is deleted by name.
type kind struct {
	name, short, long string
	one               bool               // only one at a time
	names             session.NameLister // nil: none are completed
	remove            func(ctx context.Context, client *rpc.Client, name string) error
}

var (
	node = kind{
		name: "node", short: "Forget a mux or host that is gone for good", one: true, names: session.NodeNames,
		long: `Forget a mux or host that is gone for good. It is refused while the node is connected
or backends live on it. A node that comes back registers anew.`,
		remove: func(ctx context.Context, client *rpc.Client, name string) error {
			_, err := client.DeleteNode(ctx, &weirv1.DeleteNodeRequest{Name: name})
			return err
		},
	}
	manager = kind{
		name: "manager", short: "Take a manager out of the cluster for good, alive or dead", one: true,
		long: `Take a manager out of the cluster for good, alive or dead. Its program ends; to join again
it needs an empty data directory.`,
		remove: func(ctx context.Context, client *rpc.Client, name string) error {
			_, err := client.DeleteManager(ctx, &weirv1.DeleteManagerRequest{Name: name})
			return err
		},
	}
	pool = kind{
		name: "pool", short: "Delete address pools. It is refused while a VIP names one", names: session.PoolNames,
		remove: func(ctx context.Context, client *rpc.Client, name string) error {
			_, err := client.DeleteAddressPool(ctx, &weirv1.DeleteAddressPoolRequest{Name: name})
			return err
		},
	}
	prefixList = kind{
		name: "prefixlist", short: "Delete prefix lists. It is refused while an endpoint names one",
		names: session.PrefixListNames,
		remove: func(ctx context.Context, client *rpc.Client, name string) error {
			_, err := client.DeletePrefixList(ctx, &weirv1.DeletePrefixListRequest{Name: name})
			return err
		},
	}
	network = kind{
		name: "network", short: "Delete virtual networks. It is refused while a VIP is attached", names: session.NetworkNames,
		remove: func(ctx context.Context, client *rpc.Client, name string) error {
			_, err := client.DeleteVirtualNetwork(ctx, &weirv1.DeleteVirtualNetworkRequest{Name: name})
			return err
		},
	}
	overlay = kind{
		name: "overlay", short: "Delete the overlay, default. It is refused while a VIP is attached to a virtual network", one: true,
		remove: func(ctx context.Context, client *rpc.Client, name string) error {
			if name != vnet.OverlayName {
				return fmt.Errorf("there is one overlay only, named %s", vnet.OverlayName)
			}
			_, err := client.DeleteOverlay(ctx, &weirv1.DeleteOverlayRequest{})
			return err
		},
	}
	fabric = kind{
		name: "fabric", short: "Delete the fabric: VIPs of placement auto go back to muxes", one: true, names: session.FabricNames,
		remove: func(ctx context.Context, client *rpc.Client, name string) error {
			_, err := client.DeleteFabric(ctx, &weirv1.DeleteFabricRequest{Name: name})
			return err
		},
	}
	tenant = kind{
		name: "tenant", short: "Delete tenants. It is refused while one has VIPs or users", names: session.TenantNames,
		remove: func(ctx context.Context, client *rpc.Client, name string) error {
			_, err := client.DeleteTenant(ctx, &weirv1.DeleteTenantRequest{Name: name})
			return err
		},
	}
)

// deleteCommand returns the command that deletes those named.
func (k kind) deleteCommand(s *session.Session) *cobra.Command {
	most, usage := session.MaxNames, "NAME..."
	if k.one {
		most, usage = 1, "NAME"
	}
	cmd := &cobra.Command{
		Use: k.name + " " + usage, Short: k.short, Long: k.long, Args: session.Arguments(1, most, usage),
		RunE: func(cmd *cobra.Command, args []string) error { return deleteEach(s, cmd, k, args) },
	}
	if k.names != nil {
		cmd.ValidArgsFunction = s.Complete(most, k.names)
	}
	return cmd
}

// deleteEach deletes those named of a kind, one after the other, whatever becomes of the others.
func deleteEach(s *session.Session, cmd *cobra.Command, k kind, names []string) error {
	var errs []error
	for _, name := range names {
		err := s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
			return k.remove(ctx, client, name)
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("delete %s %s: %w", k.name, name, err))
			continue
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s %s deleted\n", k.name, name)
	}
	return errors.Join(errs...)
}
