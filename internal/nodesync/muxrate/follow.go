package muxrate

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rate"
	"github.com/weirlb/weir/internal/replica"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
)

// askTimeout bounds how long another manager may take to tell what it has.
const askTimeout = 5 * time.Second

// followOthers has the samples of the other managers until ctx ends. A manager that has just started takes what another one
// has of all muxes first: among it is what its own told it before.
func (m *Meter) followOthers(ctx context.Context) {
	began := m.Now().Truncate(m.Interval)
	for _, other := range m.Store.State().Managers {
		if other.Name != m.Name && m.takeAll(ctx, other, began) == nil {
			break
		}
	}
	replica.FollowOthers(ctx, m.Name, m.Store.Watch, func(ctx context.Context, other store.Manager) { m.follow(ctx, other, began) })
}

// takeAll takes what another manager has, of all muxes, up to a time.
func (m *Meter) takeAll(ctx context.Context, other store.Manager, until time.Time) error {
	client, err := m.Peer(other.Address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	stream, err := client.WatchRates(ctx, &weirv1.WatchRatesRequest{Whole: true, Since: timestamppb.New(until.Add(-rate.Keep * m.Interval))})
	if err != nil {
		return err
	}
	defer stream.Close()
	var samples []*rate.Sample
	for stream.Receive() {
		if stream.Msg().GetType() == TypeBookmark {
			m.seed(samples)
			return nil
		}
		if s := FromProto(stream.Msg()); !s.At.After(until) && len(samples) < rate.Keep {
			samples = append(samples, s)
		}
	}
	return stream.Err()
}

// seed takes samples of all muxes.
func (m *Meter) seed(samples []*rate.Sample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range samples {
		if !m.all.Has(s.At) {
			m.all.Put(s)
		}
	}
}

// follow takes the samples of another manager that ended after a time, until ctx ends.
func (m *Meter) follow(ctx context.Context, other store.Manager, after time.Time) {
	defer m.forget(other.Name)
	client, err := m.Peer(other.Address)
	if err != nil {
		m.Log.Warn("can't follow another manager", "manager", other.Name, "err", err)
		return
	}
	rpc.Follow(ctx, m.Log, "rates of "+other.Name, //nolint:errcheck // it ends with ctx
		func(ctx context.Context) (*connect.ServerStreamForClient[weirv1.WatchRatesResponse], error) {
			return client.WatchRates(ctx, &weirv1.WatchRatesRequest{Whole: true, Own: true, Since: timestamppb.New(after)})
		}, func(p *weirv1.WatchRatesResponse) error {
			if p.GetType() != TypeSample {
				return nil
			}
			if s := FromProto(p); s.At.After(after) && !s.At.After(m.Now().Add(m.Interval)) {
				after = s.At
				m.put(other.Name, s)
			}
			return nil
		})
}
