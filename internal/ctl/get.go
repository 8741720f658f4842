package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/manifest"
	"github.com/weirlb/weir/internal/rpc"
)

func getCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get",
		Short: "List VIPs, address pools, prefix lists, tenants, events or nodes, a line each",
		Example: `  weir get vips
  weir get vips -l team=web --watch
  weir get pools
  weir get events --vip shop
  weir get nodes --role mux
  weir get vip shop -o yaml > shop.yaml`,
	}
	group(cmd)
	cmd.AddCommand(s.getVIPsCommand(), s.getPoolsCommand(), s.getPrefixListsCommand(), s.getTenantsCommand(), s.getEventsCommand(), s.getNodesCommand(), s.getManagersCommand())
	return cmd
}

func (s *session) getVIPsCommand() *cobra.Command {
	var tenant, labels, prefix, host string
	var watch, warned bool
	cmd := &cobra.Command{
		Use:               "vips [NAME]",
		Aliases:           []string{"vip"},
		Short:             "List VIPs, or the one named; as YAML or JSON they can be applied again",
		Args:              arguments(0, 1, "[NAME]"),
		ValidArgsFunction: s.complete(1, vipNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if watch && (host != "" || warned) {
				return &usageError{cmd, errors.New("--host and --with-warnings list, and do not watch")}
			}
			if watch {
				return s.watchVIPs(cmd, &weirv1.WatchVIPsRequest{Tenant: tenant, LabelSelector: labels, NamePrefix: cmp.Or(strings.Join(args, ""), prefix)})
			}
			return s.call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				if len(args) == 0 {
					vips, err := listVIPs(ctx, client, &weirv1.ListVIPsRequest{
						Tenant: tenant, LabelSelector: labels, NamePrefix: prefix, Host: host, WithWarnings: warned,
					})
					if err != nil {
						return fmt.Errorf("list vips: %w", err)
					}
					return s.printVIPs(cmd.OutOrStdout(), vips)
				}
				response, err := client.GetVIP(ctx, &weirv1.GetVIPRequest{Name: args[0]})
				if err != nil {
					return fmt.Errorf("get vip %s: %w", args[0], err)
				}
				return s.printVIPs(cmd.OutOrStdout(), []*weirv1.VIP{response.GetVip()})
			})
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "only those of the `tenant`")
	cmd.Flags().StringVar(&prefix, "name-prefix", "", "only those whose name begins with the `text`")
	cmd.Flags().StringVar(&host, "host", "", "only those with a backend, or a workload that leaves as them, on the `host`")
	cmd.Flags().BoolVar(&warned, "with-warnings", false, "only those that weir status warns of")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on with what changes; with NAME, of VIPs whose name begins so")
	selectorFlag(cmd, &labels)
	s.outputFlag(cmd)
	return cmd
}

// listVIPs reads all pages.
func listVIPs(ctx context.Context, client *rpc.Client, r *weirv1.ListVIPsRequest) ([]*weirv1.VIP, error) {
	var all []*weirv1.VIP
	for {
		response, err := client.ListVIPs(ctx, r)
		if err != nil {
			return nil, err
		}
		all = append(all, response.GetVips()...)
		if r.PageToken = response.GetNextPageToken(); r.PageToken == "" {
			return all, nil
		}
	}
}

func (s *session) printVIPs(w io.Writer, vips []*weirv1.VIP) error {
	if s.format == formatTable {
		return vipTable(vips).write(w)
	}
	return s.printDocuments(w, vipDocuments(vips))
}

// printDocuments writes resources as JSON, one as itself, or as YAML.
func (s *session) printDocuments(w io.Writer, documents []manifest.Document) error {
	switch {
	case s.format == formatYAML:
		text, err := manifest.Encode(documents...)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	case len(documents) == 1:
		return s.print(w, documents[0], nil)
	}
	return s.print(w, documents, nil)
}

func (s *session) getNodesCommand() *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use:               "nodes [NAME]",
		Aliases:           []string{"node"},
		Short:             "List muxes and hosts, or the one named",
		Args:              arguments(0, 1, "[NAME]"),
		ValidArgsFunction: s.complete(1, nodeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				if len(args) == 0 {
					response, err := client.ListNodes(ctx, &weirv1.ListNodesRequest{Role: role})
					if err != nil {
						return fmt.Errorf("list nodes: %w", err)
					}
					return s.print(cmd.OutOrStdout(), messages(response.GetNodes()), s.nodeTable(response.GetNodes()).write)
				}
				response, err := client.GetNode(ctx, &weirv1.GetNodeRequest{Name: args[0]})
				if err != nil {
					return fmt.Errorf("get node %s: %w", args[0], err)
				}
				nodes := []*weirv1.Node{response.GetNode()}
				return s.print(cmd.OutOrStdout(), message{response.GetNode()}, s.nodeTable(nodes).write)
			})
		},
	}
	cmd.Flags().StringVar(&role, "role", "", "only nodes of the `role` mux or host")
	cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"mux", "host"}, cobra.ShellCompDirectiveNoFileComp)) //nolint:errcheck // the flag stands one line above
	s.outputFlag(cmd)
	return cmd
}
