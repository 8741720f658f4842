package session

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

// completeTime bounds a call that answers a press of the tab key.
const completeTime = time.Second

// MaxNames bounds the names that a command takes.
const MaxNames = 10000

// NameLister lists the names that an argument may be, each with a tab and a remark behind it if that helps.
type NameLister func(context.Context, *rpc.Client) ([]string, error)

// Complete asks the manager for names; most bounds the arguments that get any.
func (s *Session) Complete(most int, list NameLister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		client, err := s.Connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer client.Close()
		parent := cmd.Context()
		if parent == nil {
			parent = context.Background()
		}
		ctx, cancel := context.WithTimeout(parent, completeTime)
		defer cancel()
		names, err := list(ctx, client)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteMux completes a flag that names a mux, whatever the arguments are.
func (s *Session) CompleteMux(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return s.Complete(1, muxNames)(cmd, nil, prefix)
}

// CompleteFlag completes a flag that cmd has with these values.
func CompleteFlag(cmd *cobra.Command, flag string, values ...string) {
	complete := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	cmd.RegisterFlagCompletionFunc(flag, complete) //nolint:errcheck // it fails without the flag alone
}

// names are those of a list that was read, if it was.
func names[T any](list []T, err error, name func(T) string) ([]string, error) {
	var all []string
	for _, t := range list {
		all = append(all, name(t))
	}
	return all, err
}

// VIPNames is a NameLister of VIPs.
func VIPNames(ctx context.Context, client *rpc.Client) ([]string, error) {
	vips, err := ListVIPs(ctx, client, &weirv1.ListVIPsRequest{})
	return names(vips, err, func(v *weirv1.VIP) string { return v.GetName() + "\t" + v.GetAddress() })
}

// NodeNames is a NameLister of muxes and hosts.
func NodeNames(ctx context.Context, client *rpc.Client) ([]string, error) {
	nodes, err := client.Nodes(ctx, "")
	return names(nodes, err, func(n *weirv1.Node) string { return n.GetName() + "\t" + n.GetRole() })
}

// SwitchNames is a NameLister of switches.
func SwitchNames(ctx context.Context, client *rpc.Client) ([]string, error) {
	switches, err := client.Nodes(ctx, model.RoleSwitch)
	return names(switches, err, (*weirv1.Node).GetName)
}

func muxNames(ctx context.Context, client *rpc.Client) ([]string, error) {
	muxes, err := ListMuxes(ctx, client)
	return names(muxes, err, (*weirv1.Node).GetName)
}

// PoolNames is a NameLister of address pools.
func PoolNames(ctx context.Context, client *rpc.Client) ([]string, error) {
	pools, err := ListPools(ctx, client, "")
	return names(pools, err, (*weirv1.AddressPool).GetName)
}

// PrefixListNames is a NameLister of prefix lists.
func PrefixListNames(ctx context.Context, client *rpc.Client) ([]string, error) {
	lists, err := ListPrefixLists(ctx, client, &weirv1.ListPrefixListsRequest{})
	return names(lists, err, (*weirv1.PrefixList).GetName)
}

// NetworkNames is a NameLister of virtual networks.
func NetworkNames(ctx context.Context, client *rpc.Client) ([]string, error) {
	networks, err := ListNetworks(ctx, client, &weirv1.ListVirtualNetworksRequest{})
	return names(networks, err, (*weirv1.VirtualNetwork).GetName)
}

// FabricNames is a NameLister of fabrics.
func FabricNames(ctx context.Context, client *rpc.Client) ([]string, error) {
	response, err := client.ListFabrics(ctx, &weirv1.ListFabricsRequest{})
	return names(response.GetFabrics(), err, (*weirv1.Fabric).GetName)
}

// TenantNames is a NameLister of tenants.
func TenantNames(ctx context.Context, client *rpc.Client) ([]string, error) {
	tenants, err := ListTenants(ctx, client)
	return names(tenants, err, (*weirv1.Tenant).GetName)
}
