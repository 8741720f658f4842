package resource

import (
	"context"
	"slices"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

// dryRun says what applying the lists, pools and VIPs would change. It writes nothing.
func (m *writer) dryRun(ctx context.Context, g staged, along beside, vips []model.VIP) (*weirv1.ApplyVIPsResponse, error) {
	s := g.base
	admitted, networks, err := m.admitted(ctx, s, g.lists, along, vips)
	if err != nil {
		return nil, err
	}
	change, applied := m.apply(s, admitted)
	tellPending(s, admitted, applied)
	done := networks.Change(ctx, s, &change)
	for i, move := range m.placements.Moves(ctx, s, admitted, change) {
		applied[i].Effects, applied[i].Move = m.effects(s, admitted[i], change), move
	}
	_, appliedPools := changedPools(s, along.pools)
	return &weirv1.ApplyVIPsResponse{
		Generation: uint64(s.Generation), Vips: applied, Pools: appliedPools, PrefixLists: g.applied,
		Networks: done.Networks, Overlays: done.Overlays,
	}, nil
}

// effects are those of the change on the endpoints of vip whose tables it touches, in order.
func (m *writer) effects(s *store.State, vip model.VIP, change store.Change) []*weirv1.EndpointEffect {
	var all []*weirv1.EndpointEffect
	old := s.VIPs.At(vip.Name)
	for _, e := range vip.Endpoints {
		key := desired.Key(vip, e)
		table, changed := change.Tables[key]
		if !changed {
			continue
		}
		before, had := s.Tables.Get(key)
		p := &weirv1.EndpointEffect{Endpoint: wire.EndpointKeyToProto(key), Change: rpc.Created, TableBytesAfter: table.Bytes()}
		if had {
			p.Change, p.TableBytesBefore = rpc.Updated, before.Bytes()
		}
		effect := desired.EffectOf(&s.State, vip, e, before, table)
		p.BucketsMoved, p.BucketsTotal, p.BucketsWaiting = uint32(effect.Moved), uint32(effect.Total), uint32(effect.Waiting)
		m.addSessions(p, old, key, before, effect)
		all = append(all, p)
	}
	for _, key := range desired.RemovedEndpoints(old, vip) {
		if slices.Contains(change.DeleteTables, key) {
			p := &weirv1.EndpointEffect{
				Endpoint: wire.EndpointKeyToProto(key), Change: rpc.Removed, TableBytesBefore: s.Tables.At(key).Bytes(),
				BucketsTotal: uint32(len(s.Tables.At(key).MuxBuckets())),
			}
			m.addSessions(p, old, key, s.Tables.At(key), desired.Effect{})
			all = append(all, p)
		}
	}
	return all
}

// addSessions counts the connections that hosts remember of an endpoint of vip. Those of a backend are
// taken to be spread evenly over its buckets.
func (m *writer) addSessions(p *weirv1.EndpointEffect, vip model.VIP, key model.EndpointKey, table desired.Table, effect desired.Effect) {
	slots := table.Slots()
	for _, e := range vip.Endpoints {
		if desired.Key(vip, e) != key {
			continue
		}
		for _, b := range e.Backends {
			counted, slot := m.Sessions.Of(vip, e, b), slots[b.AddrPort()]
			p.Sessions += counted.Sessions
			p.SessionsWithoutCookie += counted.WithoutCookie
			if held := uint64(effect.Held[slot]); held > 0 {
				p.SessionsChained += (counted.WithoutCookie*uint64(effect.Draining[slot]) + held - 1) / held
			}
		}
	}
}
