package get

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/output"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/rpc"
)

func vipsCommand(s *session.Session) *cobra.Command {
	var tenant, labels, prefix, host string
	var watch, warned bool
	cmd := &cobra.Command{
		Use:               "vips [NAME]",
		Aliases:           []string{"vip"},
		Short:             "List VIPs, or the one named; as YAML or JSON they can be applied again",
		Args:              session.Arguments(0, 1, "[NAME]"),
		ValidArgsFunction: s.Complete(1, session.VIPNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if watch && (host != "" || warned) {
				return session.NewUsageError(cmd, errors.New("--host and --with-warnings list, and do not watch"))
			}
			if watch && s.Output == output.FormatName {
				return session.NewUsageError(cmd, errors.New("--watch tells what becomes of VIPs, not their names alone"))
			}
			if watch {
				return watchVIPs(s, cmd, &weirv1.WatchVIPsRequest{
					Tenant: tenant, LabelSelector: labels, NamePrefix: cmp.Or(strings.Join(args, ""), prefix),
				})
			}
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				if len(args) == 0 {
					vips, err := session.ListVIPs(ctx, client, &weirv1.ListVIPsRequest{
						Tenant: tenant, LabelSelector: labels, NamePrefix: prefix, Host: host, WithWarnings: warned,
					})
					if err != nil {
						return fmt.Errorf("list vips: %w", err)
					}
					return printVIPs(s, cmd.OutOrStdout(), vips)
				}
				response, err := client.GetVIP(ctx, &weirv1.GetVIPRequest{Name: args[0]})
				if err != nil {
					return fmt.Errorf("get vip %s: %w", args[0], err)
				}
				return printVIPs(s, cmd.OutOrStdout(), []*weirv1.VIP{response.GetVip()})
			})
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "only those of the `tenant`")
	cmd.Flags().StringVar(&prefix, "name-prefix", "", "only those whose name begins with the `text`")
	cmd.Flags().StringVar(&host, "host", "", "only those with a backend, or a workload that leaves as them, on the `host`")
	cmd.Flags().BoolVar(&warned, "with-warnings", false, "only those that weir status warns of")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on with what changes; with NAME, of VIPs whose name begins so")
	selectorFlag(cmd, &labels)
	s.Output.AddFlag(cmd, output.FormatName)
	return cmd
}

func printVIPs(s *session.Session, w io.Writer, vips []*weirv1.VIP) error {
	return output.PrintResources(s.Output, w, vips, output.VIPStatus, table.VIPs("NAME", vips).Write)
}

// watchVIPs writes VIPs as they change, one line each.
func watchVIPs(s *session.Session, cmd *cobra.Command, r *weirv1.WatchVIPsRequest) error {
	client, err := s.Connect()
	if err != nil {
		return err
	}
	defer client.Close()
	err = client.EachVIP(cmd.Context(), r, func(p *weirv1.WatchVIPsResponse) error {
		if p.GetVip() == nil {
			return nil
		}
		return s.Output.PrintLine(cmd.OutOrStdout(), p, func(w io.Writer) {
			vip := p.GetVip()
			fmt.Fprintf(w, "%-8s  %s  %s  %s  %s\n", p.GetType(), vip.GetName(), vip.GetAddress(), table.MuxShare(vip),
				conditionWords(vip))
		})
	})
	return watchEnded(cmd, "watch vips", err)
}

// conditionWords are the conditions that do not hold, or "ready".
func conditionWords(vip *weirv1.VIP) string {
	var words []string
	for _, c := range vip.GetStatus().GetConditions() {
		if c.GetStatus() != "true" {
			words = append(words, c.GetType()+"="+c.GetStatus()+" ("+c.GetReason()+")")
		}
	}
	if len(words) == 0 {
		return "ready"
	}
	return strings.Join(words, ", ")
}
