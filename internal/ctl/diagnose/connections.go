package diagnose

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/output"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/rpc"
)

// ConnectionsCommand returns the command connections.
func ConnectionsCommand(s *session.Session) *cobra.Command {
	r, most := &weirv1.ListConnectionsRequest{}, uint32(1000)
	cmd := &cobra.Command{
		Use:   "connections --vip NAME",
		Short: "List the connections of virtual networks' clients with a VIP",
		Long: `List the connections that clients of virtual networks have with a VIP, past the muxes,
as the hosts of its backends have them. LOCAL is the address by which the backend sees
the client. CLIENT is - where you may not view the network.`,
		Example: `  weir connections --vip orders-db
  weir connections --vip orders-db --network acme-prod --host host3`,
		Args:              session.Arguments(0, 0, ""),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if r.GetVip() == "" {
				return session.NewUsageError(cmd, errors.New("--vip is missing"))
			}
			if most == 0 {
				return session.NewUsageError(cmd, errors.New("--limit must be above 0"))
			}
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				found, err := listConnections(ctx, client, r, most)
				if err != nil {
					return fmt.Errorf("list connections of vip %s: %w", r.GetVip(), err)
				}
				return s.Output.Print(cmd.OutOrStdout(), output.Message{Message: found}, func(w io.Writer) error {
					return writeConnections(w, found)
				})
			})
		},
	}
	cmd.Flags().StringVar(&r.Vip, "vip", "", "`name` of the VIP (required)")
	cmd.Flags().StringVar(&r.Network, "network", "", "`name` of the only network whose clients are listed")
	cmd.Flags().StringVar(&r.Host, "host", "", "`name` of the only host that is asked")
	cmd.Flags().Uint32Var(&most, "limit", most, "`number` of connections at most")
	for flag, names := range map[string]session.NameLister{"vip": session.VIPNames, "network": session.NetworkNames, "host": session.NodeNames} {
		cmd.RegisterFlagCompletionFunc(flag, s.Complete(1, names)) //nolint:errcheck // it fails without the flag alone
	}
	s.Output.AddFlag(cmd)
	return cmd
}

// listConnections reads pages until there are enough.
func listConnections(ctx context.Context, client *rpc.Client, r *weirv1.ListConnectionsRequest, most uint32) (*weirv1.ListConnectionsResponse, error) {
	all := &weirv1.ListConnectionsResponse{}
	for {
		r.PageSize, r.PageToken = min(most-uint32(len(all.GetConnections())), 1000), all.GetNextPageToken()
		page, err := client.ListConnections(ctx, r)
		if err != nil {
			return nil, err
		}
		all.Connections = append(all.Connections, page.GetConnections()...)
		all.Unanswered = append(all.Unanswered, page.GetUnanswered()...)
		if all.NextPageToken = page.GetNextPageToken(); all.NextPageToken == "" || len(all.GetConnections()) >= int(most) {
			return all, nil
		}
	}
}

func writeConnections(w io.Writer, found *weirv1.ListConnectionsResponse) error {
	t := table.New("", "no connections", "PROTOCOL", "CLIENT", "NETWORK", "VIP", "LOCAL", "BACKEND", "HOST", "STATE", "IDLE")
	for _, c := range found.GetConnections() {
		t.Add(c.GetProtocol(), c.GetClient(), c.GetNetwork(), c.GetVip(), c.GetLocal(), c.GetBackend(), c.GetHost(), c.GetState(), c.GetIdle().AsDuration().Round(time.Second))
	}
	if err := t.Write(w); err != nil {
		return err
	}
	for _, h := range found.GetUnanswered() {
		fmt.Fprintf(w, "host %s did not answer: %s\n", h.GetHost(), h.GetReason())
	}
	if found.GetNextPageToken() != "" {
		fmt.Fprintln(w, "there are more: raise --limit")
	}
	return nil
}
