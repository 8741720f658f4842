package live

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/trust"
	"github.com/weirlb/weir/internal/warning"
)

// maxWarnings bounds the warnings of a message: those of VIPs are bounded too.
const maxWarnings = 200

// WatchStatus streams the sums of GetStatus and what needs attention.
func (s *Streams) WatchStatus(ctx context.Context, r *weirv1.WatchStatusRequest, stream *connect.ServerStream[weirv1.WatchStatusResponse]) error {
	return apierr.ToConnect(s.EachStatus(ctx, r, stream.Send))
}

// EachStatus sends the status when it differs, and now and then, until ctx ends, the manager stops, or send fails.
func (s *Streams) EachStatus(ctx context.Context, _ *weirv1.WatchStatusRequest, send func(*weirv1.WatchStatusResponse) error) error {
	end, err := s.Watches.Begin(trust.FromContext(ctx))
	if err != nil {
		return err
	}
	defer end()
	var told *weirv1.WatchStatusResponse
	var last time.Time
	for {
		_, changed := s.Store.Watch()
		if now := s.status(ctx); !proto.Equal(now, told) || time.Since(last) >= BookmarkInterval {
			if err := send(now); err != nil {
				return err
			}
			told, last = now, time.Now()
		}
		if err := s.next(ctx, changed, lookInterval); err != nil {
			return ended(err)
		}
	}
}

// status is what the caller is told of.
func (s *Streams) status(ctx context.Context) *weirv1.WatchStatusResponse {
	stored := s.Store.State()
	now := s.look.get(s)
	status := s.Status(ctx, stored, now.all)
	if !authz.CanView(ctx, trust.AllTenants) {
		status.Nodes = nil // those that all callers of tenants share are redacted
		authz.Redact(trust.FromContext(ctx), status)
		status.Nodes = now.redacted
	}
	warnings, total := warning.Of(status, s.Now())
	status.Nodes, status.VipWarnings, status.VipWarningsTotal = nil, nil, 0
	return &weirv1.WatchStatusResponse{Status: status, Warnings: warnings[:min(len(warnings), maxWarnings)], WarningsTotal: uint32(total)}
}
