package ctl

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/manifest"
	"github.com/weirlb/weir/internal/rpc"
)

func (s *session) getPoolsCommand() *cobra.Command {
	var labels string
	cmd := &cobra.Command{
		Use:               "pools [NAME]",
		Aliases:           []string{"pool"},
		Short:             "List address pools with their use, or the one named",
		Args:              arguments(0, 1, "[NAME]"),
		ValidArgsFunction: s.complete(1, poolNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				if len(args) == 0 {
					pools, err := listPools(ctx, client, labels)
					if err != nil {
						return fmt.Errorf("list pools: %w", err)
					}
					return s.printPools(cmd.OutOrStdout(), pools)
				}
				response, err := client.GetAddressPool(ctx, &weirv1.GetAddressPoolRequest{Name: args[0]})
				if err != nil {
					return fmt.Errorf("get pool %s: %w", args[0], err)
				}
				return s.printPools(cmd.OutOrStdout(), []*weirv1.AddressPool{response.GetPool()})
			})
		},
	}
	selectorFlag(cmd, &labels)
	s.outputFlag(cmd)
	return cmd
}

// selectorFlag adds -l to cmd.
func selectorFlag(cmd *cobra.Command, labels *string) {
	cmd.Flags().StringVarP(labels, "selector", "l", "", "only those whose labels fit the `selector`, as app=shop,tier!=test,zone in (a,b)")
}

// listPools reads all pages.
func listPools(ctx context.Context, client *rpc.Client, labels string) ([]*weirv1.AddressPool, error) {
	request := &weirv1.ListAddressPoolsRequest{LabelSelector: labels}
	var all []*weirv1.AddressPool
	for {
		response, err := client.ListAddressPools(ctx, request)
		if err != nil {
			return nil, err
		}
		all = append(all, response.GetPools()...)
		if request.PageToken = response.GetNextPageToken(); request.PageToken == "" {
			return all, nil
		}
	}
}

func (s *session) printPools(w io.Writer, pools []*weirv1.AddressPool) error {
	if s.format == formatTable {
		t := newColumns("", "no address pools: weir apply -f FILE makes some", "NAME", "PREFIXES", "EXCLUSIONS", "TENANTS", "IPV4", "IPV6")
		for _, p := range pools {
			tenants := strings.Join(p.GetTenants(), ",")
			if tenants == "" {
				tenants = "all"
			}
			t.add(p.GetName(), strings.Join(p.GetPrefixes(), ","), strings.Join(p.GetExclusions(), ","), tenants,
				poolUse(p.GetStatus().GetIpv4()), poolUse(p.GetStatus().GetIpv6()))
		}
		return t.write(w)
	}
	documents := make([]manifest.Document, 0, len(pools))
	for _, p := range pools {
		documents = append(documents, manifest.Document{Message: p, Status: message{p.GetStatus()}})
	}
	return s.printDocuments(w, documents)
}

// poolUse is "3/256": the addresses of a family that VIPs have, of all.
func poolUse(u *weirv1.PoolUse) string {
	switch {
	case u == nil:
		return ""
	case u.GetTotal() == math.MaxUint64:
		return fmt.Sprintf("%d", u.GetUsed())
	}
	return fmt.Sprintf("%d/%d", u.GetUsed(), u.GetTotal())
}

func poolNames(ctx context.Context, client *rpc.Client) ([]string, error) {
	pools, err := listPools(ctx, client, "")
	var names []string
	for _, p := range pools {
		names = append(names, p.GetName())
	}
	return names, err
}

func (s *session) deletePoolCommand() *cobra.Command {
	return s.deleteCommand("pool", "Delete address pools. It is refused while a VIP names one", poolNames, s.deletePools)
}

func (s *session) deletePools(cmd *cobra.Command, names []string) error {
	return s.deleteEach(cmd, "pool", names, func(ctx context.Context, client *rpc.Client, name string) error {
		_, err := client.DeleteAddressPool(ctx, &weirv1.DeleteAddressPoolRequest{Name: name})
		return err
	})
}
