package live

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/model"
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
		if now := s.status(ctx); now != told && !proto.Equal(now, told) || time.Since(last) >= BookmarkInterval {
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

// status is what the caller is told of. It is not written again.
func (s *Streams) status(ctx context.Context) *weirv1.WatchStatusResponse {
	if authz.CanView(ctx, trust.AllTenants) {
		return s.whole.get(ctx, s)
	}
	status := s.Status(ctx)
	authz.Redact(trust.FromContext(ctx), status)
	list, at := s.look.get(s, false)
	return s.warned(status, list.all, at)
}

// warned is a status with what needs attention, of these nodes too, and without what that is of. The nodes are of a State of
// generation at, which may be older: a node is not behind what was written since.
func (s *Streams) warned(status *weirv1.GetStatusResponse, nodes []*weirv1.Node, at model.Generation) *weirv1.WatchStatusResponse {
	newest := status.GetGeneration()
	status.Nodes, status.Generation = nodes, min(newest, uint64(at))
	warnings, total := warning.Of(status, s.Now())
	note := warning.Silence(status, s.Now())
	status.Nodes, status.HostBackends, status.VipWarnings, status.VipWarningsTotal, status.Generation = nil, nil, nil, 0, newest
	return &weirv1.WatchStatusResponse{Status: status, Warnings: warnings[:min(len(warnings), maxWarnings)], WarningsTotal: uint32(total), Note: note}
}

// wholeStatus is what all callers who may see the whole cluster are told of, and nobody else.
type wholeStatus struct {
	mu    sync.Mutex
	until time.Time // from when on it is made again
	now   *weirv1.WatchStatusResponse
}

// get makes it anew, unless that was done just now. One that is as it was is the same message as before. The caller of ctx
// may see the whole cluster.
func (w *wholeStatus) get(ctx context.Context, s *Streams) *weirv1.WatchStatusResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	began := time.Now()
	if began.Before(w.until) {
		return w.now
	}
	nodes, at := s.look.raw(s)
	if next := s.warned(s.Status(ctx), nodes, at); w.now == nil || !proto.Equal(next, w.now) {
		w.now = next
	}
	ended := time.Now()
	w.until = ended.Add(Rest(ended.Sub(began), lookPause))
	return w.now
}
