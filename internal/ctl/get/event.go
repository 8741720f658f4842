package get

import (
	"context"
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

func eventsCommand(s *session.Session) *cobra.Command {
	var vip, severity string
	var watch bool
	cmd := &cobra.Command{
		Use:   "events",
		Short: "List what happened to VIPs, pools, muxes, hosts and managers, the latest last",
		Long: `List what happened to VIPs, pools, muxes, hosts and managers, the latest last. An event
that repeats is one line with a count. Events are forgotten after an hour or so.

With --watch, go on with what happens until interrupted.`,
		Args:              session.Arguments(0, 0, ""),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			kind := ""
			if vip != "" {
				kind = "VIP"
			}
			if watch {
				return watchEvents(s, cmd, &weirv1.WatchEventsRequest{Kind: kind, Object: vip, Severity: severity})
			}
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				request := &weirv1.ListEventsRequest{Kind: kind, Object: vip, Severity: severity}
				events, err := session.ListEvents(ctx, client, request)
				if err != nil {
					return fmt.Errorf("list events: %w", err)
				}
				return s.Output.Print(cmd.OutOrStdout(), output.Messages(events), table.Events("", events, s.Now()).Write)
			})
		},
	}
	cmd.Flags().StringVar(&vip, "vip", "", "only those of the VIP `name`")
	cmd.Flags().StringVar(&severity, "severity", "", "only those of the `severity` info or warning")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on with what happens")
	s.Output.AddFlag(cmd)
	return cmd
}

// watchEvents writes events as they happen, one line each.
func watchEvents(s *session.Session, cmd *cobra.Command, r *weirv1.WatchEventsRequest) error {
	client, err := s.Connect()
	if err != nil {
		return err
	}
	defer client.Close()
	err = client.EachEvent(cmd.Context(), r, func(p *weirv1.WatchEventsResponse) error {
		if p.GetEvent() == nil {
			return nil
		}
		return s.Output.PrintLine(cmd.OutOrStdout(), p.GetEvent(), func(w io.Writer) {
			e := p.GetEvent()
			fmt.Fprintf(w, "%s  %s  %s  %s  %s\n", e.GetLastTime().AsTime().Format(time.RFC3339), e.GetSeverity(),
				table.EventObject(e), e.GetReason(), e.GetMessage())
		})
	})
	return watchEnded(cmd, "watch events", err)
}
