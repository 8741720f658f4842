package session

import (
	"context"
	"slices"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

// readPages reads a whole list: read returns the page of a token, and the token of the next page, "" after the last.
func readPages[T any](read func(token string) ([]T, string, error)) (all []T, err error) {
	for token := ""; ; {
		page, next, err := read(token)
		if err != nil {
			return nil, err
		}
		if all = append(all, page...); next == "" {
			return all, nil
		}
		token = next
	}
}

// ListVIPs reads all pages.
func ListVIPs(ctx context.Context, client *rpc.Client, r *weirv1.ListVIPsRequest) ([]*weirv1.VIP, error) {
	return readPages(func(token string) ([]*weirv1.VIP, string, error) {
		r.PageToken = token
		response, err := client.ListVIPs(ctx, r)
		return response.GetVips(), response.GetNextPageToken(), err
	})
}

// ListEvents reads all pages.
func ListEvents(ctx context.Context, client *rpc.Client, r *weirv1.ListEventsRequest) ([]*weirv1.Event, error) {
	return readPages(func(token string) ([]*weirv1.Event, string, error) {
		r.PageToken = token
		response, err := client.ListEvents(ctx, r)
		return response.GetEvents(), response.GetNextPageToken(), err
	})
}

// ListPools reads all pages of the address pools whose labels match the selector.
func ListPools(ctx context.Context, client *rpc.Client, selector string) ([]*weirv1.AddressPool, error) {
	return readPages(func(token string) ([]*weirv1.AddressPool, string, error) {
		request := &weirv1.ListAddressPoolsRequest{LabelSelector: selector, PageToken: token}
		response, err := client.ListAddressPools(ctx, request)
		return response.GetPools(), response.GetNextPageToken(), err
	})
}

// ListPrefixLists reads all pages.
func ListPrefixLists(
	ctx context.Context, client *rpc.Client, r *weirv1.ListPrefixListsRequest,
) ([]*weirv1.PrefixList, error) {
	return readPages(func(token string) ([]*weirv1.PrefixList, string, error) {
		r.PageToken = token
		response, err := client.ListPrefixLists(ctx, r)
		return response.GetPrefixLists(), response.GetNextPageToken(), err
	})
}

// ListNetworks reads all pages.
func ListNetworks(
	ctx context.Context, client *rpc.Client, r *weirv1.ListVirtualNetworksRequest,
) ([]*weirv1.VirtualNetwork, error) {
	return readPages(func(token string) ([]*weirv1.VirtualNetwork, string, error) {
		r.PageToken = token
		response, err := client.ListVirtualNetworks(ctx, r)
		return response.GetNetworks(), response.GetNextPageToken(), err
	})
}

// ListMuxes reads the muxes that are in the pool.
func ListMuxes(ctx context.Context, client *rpc.Client) ([]*weirv1.Node, error) {
	response, err := client.ListNodes(ctx, &weirv1.ListNodesRequest{Role: string(model.RoleMux)})
	// One that is out of the pool announces nothing, and comes back by itself.
	in := slices.DeleteFunc(response.GetNodes(), func(n *weirv1.Node) bool { return n.GetStatus().GetSync() == "out" })
	return in, err
}
