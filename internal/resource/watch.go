package resource

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/resource/answering"
	"github.com/weirlb/weir/internal/resource/live"
	"github.com/weirlb/weir/internal/resource/query"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/journal"
	"github.com/weirlb/weir/internal/trust"
)

// catchUpTime is how long a watch waits for this manager to be where another one was.
const catchUpTime = 3 * time.Second

// errUnborn says that nobody has seen a resource version yet.
func errUnborn(version, newest uint64) error {
	return connect.NewError(connect.CodeOutOfRange, fmt.Errorf(
		"resource version %d is newer than the newest, %d: list again, and watch from the resource version of the list", version, newest))
}

// WatchVIPs streams VIPs as they change.
func (m *VIPs) WatchVIPs(ctx context.Context, r *weirv1.WatchVIPsRequest, stream *connect.ServerStream[weirv1.WatchVIPsResponse]) error {
	return apierr.ToConnect(m.EachVIP(ctx, r, stream.Send))
}

// EachVIP sends VIPs as they change until ctx ends, the manager stops, or send fails.
func (m *VIPs) EachVIP(ctx context.Context, r *weirv1.WatchVIPsRequest, send func(*weirv1.WatchVIPsResponse) error) error {
	f, err := query.NewFilter(r.GetTenant(), r.GetLabelSelector(), r.GetNamePrefix())
	if err != nil {
		return err
	}
	end, err := m.Watches.Begin(trust.FromContext(ctx))
	if err != nil {
		return err
	}
	defer end()
	at := r.GetResourceVersion()
	if at == 0 {
		if at, err = m.sendAll(ctx, f, send); err != nil {
			return err
		}
	} else if err := m.reach(ctx, at); err != nil {
		return err
	}
	// The first bookmark says that the watch is open.
	if err := send(&weirv1.WatchVIPsResponse{Type: live.Bookmark, ResourceVersion: at}); err != nil {
		return err
	}
	for {
		changes, state, complete, more := m.Store.ChangesSince(at)
		if !complete {
			return apierr.VersionTooOld(at)
		}
		state = m.Hub.WithProgress(state)
		var messages []*weirv1.WatchVIPsResponse
		for _, change := range changes {
			if message := m.changed(ctx, f, state, change); message != nil {
				message.ResourceVersion = at // whoever goes on from the midst of these gets all of them again
				messages = append(messages, message)
			}
		}
		if at = max(at, state.Revision()); len(messages) > 0 {
			messages[len(messages)-1].ResourceVersion = at
		}
		for _, message := range messages {
			if err := send(message); err != nil {
				return err
			}
		}
		select {
		case <-more:
		case <-time.After(m.Bookmark):
			at = max(at, m.unchangedUntil(at))
			if err := send(&weirv1.WatchVIPsResponse{Type: live.Bookmark, ResourceVersion: at}); err != nil {
				return err
			}
		case <-m.Stopping:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// unchangedUntil is the newest revision up to which no VIP changed since at.
func (m *VIPs) unchangedUntil(at uint64) uint64 {
	changes, state, complete, _ := m.Store.ChangesSince(at)
	if !complete || len(changes) > 0 {
		return at
	}
	return state.Revision()
}

// sendAll sends all VIPs that fit, and returns the revision that they are of.
func (m *VIPs) sendAll(ctx context.Context, f query.Filter, send func(*weirv1.WatchVIPsResponse) error) (uint64, error) {
	state := m.view()
	answered := answering.New(m.Reported, state)
	for vip := range visible(ctx, state, f.Tenant(), f.From("")) {
		if !f.InRange(vip.Name) {
			break
		}
		if !fits(ctx, f, vip) {
			continue
		}
		if err := send(&weirv1.WatchVIPsResponse{Type: live.Added, Vip: m.vipWithStatus(state, vip, answered)}); err != nil {
			return 0, err
		}
	}
	return state.Revision(), nil
}

// reach holds that the changes since a revision are known.
func (m *VIPs) reach(ctx context.Context, revision uint64) error {
	if err := m.awaitRevision(ctx, revision); err != nil {
		return err
	}
	if _, _, complete, _ := m.Store.ChangesSince(revision); !complete {
		return apierr.VersionTooOld(revision)
	}
	return nil
}

// awaitRevision waits a moment until this manager is where the caller was, with another one maybe.
func (m *VIPs) awaitRevision(ctx context.Context, revision uint64) error {
	expired := time.NewTimer(catchUpTime)
	defer expired.Stop()
	for {
		state, changed := m.Store.Watch()
		if state.Revision() >= revision {
			return nil
		}
		select {
		case <-changed:
		case <-expired.C:
			return errUnborn(revision, state.Revision())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// changed is what a change of a VIP is to a watch: nothing, if it chooses the VIP neither before nor after.
func (m *VIPs) changed(ctx context.Context, f query.Filter, state *store.State, change journal.Change) *weirv1.WatchVIPsResponse {
	vip, there := state.VIPs.Get(change.Name)
	before := change.Before != nil && fits(ctx, f, *change.Before)
	after := there && fits(ctx, f, vip)
	message := &weirv1.WatchVIPsResponse{}
	switch {
	case after:
		message.Vip = m.vipWithStatus(state, vip, answering.New(m.Reported, state))
		message.Type = live.Added
		if before {
			message.Type = live.Modified
		}
	case before:
		message.Type, message.Vip = live.Deleted, deletedVIP(*change.Before)
	default:
		return nil
	}
	return message
}

// deletedVIP is a VIP that a watch loses, as it was, without what is known of the present only.
func deletedVIP(vip model.VIP) *weirv1.VIP { return compile.VIPMessage(vip) }
