package get

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/output"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/rpc"
)

func prefixListsCommand(s *session.Session) *cobra.Command {
	var labels, tenant string
	cmd := &cobra.Command{
		Use:     "prefixlists [NAME]",
		Aliases: []string{"prefixlist"},
		Short:   "List prefix lists with who names them, or the one named with its prefixes",
		Long: `List prefix lists with how many prefixes they have and the VIPs whose endpoints name them.

With -o yaml or json the one named is written with all its prefixes, as weir apply reads
it; a list of all is written without them.`,
		Args:              session.Arguments(0, 1, "[NAME]"),
		ValidArgsFunction: s.Complete(1, session.PrefixListNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return getPrefixList(s, cmd, args[0])
			}
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				request := &weirv1.ListPrefixListsRequest{LabelSelector: labels, Tenant: tenant}
				lists, err := session.ListPrefixLists(ctx, client, request)
				if err != nil {
					return fmt.Errorf("list prefix lists: %w", err)
				}
				var value any = output.Message{Message: &weirv1.ListPrefixListsResponse{PrefixLists: lists}}
				if s.Output == output.FormatName {
					value = output.Messages(lists)
				}
				return s.Output.Print(cmd.OutOrStdout(), value, table.PrefixLists(lists).Write)
			})
		},
	}
	selectorFlag(cmd, &labels)
	cmd.Flags().StringVar(&tenant, "tenant", "", "only those of the tenant")
	s.Output.AddFlag(cmd, output.FormatName)
	return cmd
}

func getPrefixList(s *session.Session, cmd *cobra.Command, name string) error {
	const getTime = time.Minute
	return s.CallWithin(cmd.Context(), getTime, func(ctx context.Context, client *rpc.Client) error {
		response, err := client.GetPrefixList(ctx, &weirv1.GetPrefixListRequest{Name: name})
		if err != nil {
			return fmt.Errorf("get prefix list %s: %w", name, err)
		}
		list := []*weirv1.PrefixList{response.GetPrefixList()}
		status := func(p *weirv1.PrefixList) any { return output.Message{Message: p.GetStatus()} }
		return output.PrintResources(s.Output, cmd.OutOrStdout(), list, status, table.PrefixLists(list).Write)
	})
}
