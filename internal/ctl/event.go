package ctl

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rpc"
)

func (s *session) getEventsCommand() *cobra.Command {
	var vip, severity string
	var watch bool
	cmd := &cobra.Command{
		Use:   "events",
		Short: "List what happened to VIPs, pools, muxes, hosts and managers, the latest last",
		Long: `List what happened to VIPs, pools, muxes, hosts and managers, the latest last. An event
that repeats is one line with a count. Events are forgotten after an hour or so.

With --watch, go on with what happens until interrupted.`,
		Args:              arguments(0, 0, ""),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			kind := ""
			if vip != "" {
				kind = "VIP"
			}
			if watch {
				return s.watchEvents(cmd, &weirv1.WatchEventsRequest{Kind: kind, Object: vip, Severity: severity})
			}
			return s.call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				events, err := listEvents(ctx, client, &weirv1.ListEventsRequest{Kind: kind, Object: vip, Severity: severity})
				if err != nil {
					return fmt.Errorf("list events: %w", err)
				}
				return s.print(cmd.OutOrStdout(), messages(events), s.eventTable("", events).write)
			})
		},
	}
	cmd.Flags().StringVar(&vip, "vip", "", "only those of the VIP `name`")
	cmd.Flags().StringVar(&severity, "severity", "", "only those of the `severity` info or warning")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on with what happens")
	s.outputFlag(cmd)
	return cmd
}

// listEvents reads all pages.
func listEvents(ctx context.Context, client *rpc.Client, r *weirv1.ListEventsRequest) ([]*weirv1.Event, error) {
	var all []*weirv1.Event
	for {
		response, err := client.ListEvents(ctx, r)
		if err != nil {
			return nil, err
		}
		all = append(all, response.GetEvents()...)
		if r.PageToken = response.GetNextPageToken(); r.PageToken == "" {
			return all, nil
		}
	}
}

func (s *session) eventTable(indent string, events []*weirv1.Event) *columns {
	t := newColumns(indent, "no events", "LAST", "SEVERITY", "OBJECT", "REASON", "COUNT", "SOURCE", "MESSAGE")
	for _, e := range events {
		t.add(s.ago(e.GetLastTime()), e.GetSeverity(), eventObject(e), e.GetReason(), e.GetCount(), e.GetSource(), e.GetMessage())
	}
	return t
}

// eventObject is "vip shop" or "mux mux1".
func eventObject(e *weirv1.Event) string {
	switch e.GetKind() {
	case "VIP":
		return "vip " + e.GetObject()
	case "AddressPool":
		return "pool " + e.GetObject()
	}
	return e.GetKind() + " " + e.GetObject()
}

// watchEvents writes events as they happen, one line each.
func (s *session) watchEvents(cmd *cobra.Command, r *weirv1.WatchEventsRequest) error {
	client, err := s.connect()
	if err != nil {
		return err
	}
	defer client.Close()
	err = client.EachEvent(cmd.Context(), r, func(p *weirv1.WatchEventsResponse) error {
		if p.GetEvent() == nil {
			return nil
		}
		return s.printLine(cmd.OutOrStdout(), p.GetEvent(), func(w io.Writer) {
			e := p.GetEvent()
			fmt.Fprintf(w, "%s  %s  %s  %s  %s\n", e.GetLastTime().AsTime().Format(time.RFC3339), e.GetSeverity(), eventObject(e), e.GetReason(), e.GetMessage())
		})
	})
	return watchEnded(cmd, "watch events", err)
}
