package resource

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/resource/managed"
	"github.com/weirlb/weir/internal/store"
)

// PatchBackends adds, changes and removes single backends of an endpoint, in the name of a field manager.
func (m *VIPs) PatchBackends(ctx context.Context, r *weirv1.PatchBackendsRequest) (*weirv1.PatchBackendsResponse, error) {
	if err := compile.Known(r); err != nil {
		return nil, apierr.ToConnect(err)
	}
	patch, err := managed.Read(r)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	var effect managed.Effect
	choose := func(s *store.State) ([]model.VIP, error) {
		old, there := s.VIPs.Get(r.GetName())
		if !there {
			return nil, apierr.NotFound("VIP", r.GetName(), s.VIPs, authz.CanViewVIP(ctx))
		}
		vip, did, err := patch.On(old)
		if missing := (*managed.NoEndpointError)(nil); errors.As(err, &missing) {
			return nil, connect.NewError(connect.CodeNotFound, err)
		}
		effect = did
		return []model.VIP{vip}, err
	}
	along := beside{strict: r.GetStrict(), patched: true}
	var vips []*weirv1.AppliedVIP
	var generation uint64
	if r.GetDryRun() {
		var response *weirv1.ApplyVIPsResponse
		if vip, failed := choose(m.Store.State()); failed != nil {
			err = failed
		} else if response, err = m.dryRun(ctx, staged{base: m.Store.State()}, along, vip); err == nil {
			vips, generation = response.GetVips(), response.GetGeneration()
		}
	} else {
		var done outcome
		done, err = m.write(ctx, along, choose)
		vips, generation = done.vips, uint64(done.generation)
	}
	if err != nil {
		return nil, apierr.ToConnect(apierr.TrimField("vips[0].", err))
	}
	return &weirv1.PatchBackendsResponse{
		Generation: generation, Pending: vips[0].GetPending(),
		Added: effect.Added, Updated: effect.Updated, Removed: effect.Removed, Managed: effect.Managed,
	}, nil
}
