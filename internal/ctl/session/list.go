package session

import (
	"context"
	"slices"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

// ListVIPs reads all pages.
func ListVIPs(ctx context.Context, client *rpc.Client, r *weirv1.ListVIPsRequest) ([]*weirv1.VIP, error) {
	return rpc.Pages(func(token string) ([]*weirv1.VIP, string, error) {
		r.PageToken = token
		response, err := client.ListVIPs(ctx, r)
		return response.GetVips(), response.GetNextPageToken(), err
	})
}

// ListEvents reads all pages.
func ListEvents(ctx context.Context, client *rpc.Client, r *weirv1.ListEventsRequest) ([]*weirv1.Event, error) {
	return rpc.Pages(func(token string) ([]*weirv1.Event, string, error) {
		r.PageToken = token
		response, err := client.ListEvents(ctx, r)
		return response.GetEvents(), response.GetNextPageToken(), err
	})
}

// ListPools reads all pages of the address pools whose labels match the selector.
func ListPools(ctx context.Context, client *rpc.Client, selector string) ([]*weirv1.AddressPool, error) {
	return rpc.Pages(func(token string) ([]*weirv1.AddressPool, string, error) {
		request := &weirv1.ListAddressPoolsRequest{LabelSelector: selector, PageToken: token}
		response, err := client.ListAddressPools(ctx, request)
		return response.GetPools(), response.GetNextPageToken(), err
	})
}

// ListPrefixLists reads all pages.
func ListPrefixLists(
	ctx context.Context, client *rpc.Client, r *weirv1.ListPrefixListsRequest,
) ([]*weirv1.PrefixList, error) {
	return rpc.Pages(func(token string) ([]*weirv1.PrefixList, string, error) {
		r.PageToken = token
		response, err := client.ListPrefixLists(ctx, r)
		return response.GetPrefixLists(), response.GetNextPageToken(), err
	})
}

// ListNetworks reads all pages.
func ListNetworks(
	ctx context.Context, client *rpc.Client, r *weirv1.ListVirtualNetworksRequest,
) ([]*weirv1.VirtualNetwork, error) {
	return rpc.Pages(func(token string) ([]*weirv1.VirtualNetwork, string, error) {
		r.PageToken = token
		response, err := client.ListVirtualNetworks(ctx, r)
		return response.GetNetworks(), response.GetNextPageToken(), err
	})
}

// ListTenants reads all pages.
func ListTenants(ctx context.Context, client *rpc.Client) ([]*weirv1.Tenant, error) {
	return rpc.Pages(func(token string) ([]*weirv1.Tenant, string, error) {
		response, err := client.ListTenants(ctx, &weirv1.ListTenantsRequest{PageToken: token})
		return response.GetTenants(), response.GetNextPageToken(), err
	})
}

// ListUsers reads all pages.
func ListUsers(ctx context.Context, client *rpc.Client) ([]*weirv1.User, error) {
	return rpc.Pages(func(token string) ([]*weirv1.User, string, error) {
		response, err := client.ListUsers(ctx, &weirv1.ListUsersRequest{PageToken: token})
		return response.GetUsers(), response.GetNextPageToken(), err
	})
}

// ListTokens reads all pages.
func ListTokens(ctx context.Context, client *rpc.Client) ([]*weirv1.Token, error) {
	return rpc.Pages(func(token string) ([]*weirv1.Token, string, error) {
		response, err := client.ListTokens(ctx, &weirv1.ListTokensRequest{PageToken: token})
		return response.GetTokens(), response.GetNextPageToken(), err
	})
}

// ListMuxes reads the muxes that are in the pool.
func ListMuxes(ctx context.Context, client *rpc.Client) ([]*weirv1.Node, error) {
	muxes, err := client.Nodes(ctx, model.RoleMux)
	// One that is out of the pool announces nothing, and comes back by itself.
	in := slices.DeleteFunc(muxes, func(n *weirv1.Node) bool { return n.GetStatus().GetSync() == "out" })
	return in, err
}
