package resource

import (
	"context"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/resource/answering"
	"github.com/weirlb/weir/internal/resource/mergepatch"
	"github.com/weirlb/weir/internal/resource/network"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/eventlog"
	"github.com/weirlb/weir/internal/trust"
)

// CreateVIP creates a VIP.
func (m *VIPs) CreateVIP(ctx context.Context, r *weirv1.CreateVIPRequest) (*weirv1.CreateVIPResponse, error) {
	if err := compile.Known(r); err != nil {
		return nil, apierr.ToConnect(err)
	}
	vip, err := compile.VIP(r.GetVip())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	written, generation, err := m.writeVIP(ctx, vip.Name, r.GetStrict(), func(s *store.State) (model.VIP, error) {
		if s.VIPs.Has(vip.Name) {
			return vip, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("there is a VIP %s already: update it, or take another name", vip.Name))
		}
		return vip, nil
	})
	if err != nil {
		return nil, err
	}
	return &weirv1.CreateVIPResponse{Vip: written, Generation: generation}, nil
}

// UpdateVIP replaces a VIP.
func (m *VIPs) UpdateVIP(ctx context.Context, r *weirv1.UpdateVIPRequest) (*weirv1.UpdateVIPResponse, error) {
	if err := compile.Known(r); err != nil {
		return nil, apierr.ToConnect(err)
	}
	if err := apierr.CheckName(r.GetName(), r.GetVip().GetName()); err != nil {
		return nil, apierr.ToConnect(err)
	}
	if r.GetVip() != nil {
		r.Vip.Name = r.GetName()
	}
	vip, err := compile.VIP(r.GetVip())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	written, generation, err := m.writeVIP(ctx, vip.Name, r.GetStrict(), func(s *store.State) (model.VIP, error) {
		return vip, current(ctx, s, r.GetName(), r.GetVip().GetResourceVersion())
	})
	if err != nil {
		return nil, err
	}
	return &weirv1.UpdateVIPResponse{Vip: written, Generation: generation}, nil
}

// PatchVIP changes fields of a VIP.
func (m *VIPs) PatchVIP(ctx context.Context, r *weirv1.PatchVIPRequest) (*weirv1.PatchVIPResponse, error) {
	if err := compile.Known(r); err != nil {
		return nil, apierr.ToConnect(err)
	}
	if r.GetPatch() == nil {
		return nil, apierr.ToConnect(&model.FieldError{Field: "patch", Reason: "is required"})
	}
	written, generation, err := m.writeVIP(ctx, r.GetName(), r.GetStrict(), func(s *store.State) (model.VIP, error) {
		old, there := s.VIPs.Get(r.GetName())
		if !there {
			return model.VIP{}, apierr.NotFound("VIP", r.GetName(), s.VIPs, authz.CanViewVIP(ctx))
		}
		p := compile.VIPMessage(old)
		if err := mergepatch.Apply(p, r.GetPatch()); err != nil {
			return model.VIP{}, err
		}
		if err := apierr.CheckName(r.GetName(), p.GetName()); err != nil {
			return model.VIP{}, err
		}
		for _, version := range []uint64{r.GetResourceVersion(), p.GetResourceVersion()} {
			if err := current(ctx, s, r.GetName(), version); err != nil {
				return model.VIP{}, err
			}
		}
		return compile.VIP(p)
	})
	if err != nil {
		return nil, err
	}
	return &weirv1.PatchVIPResponse{Vip: written, Generation: generation}, nil
}

// writeVIP writes the one VIP that choose makes of the State, and returns it as it was written: another call may have
// written it since, and who goes on with that one's version would replace what it never saw.
func (m *VIPs) writeVIP(
	ctx context.Context, name string, strict bool, choose func(*store.State) (model.VIP, error),
) (*weirv1.VIP, uint64, error) {
	var written model.VIP
	var version model.Generation
	var record codec.Record
	done, err := m.write(ctx, beside{strict: strict}, func(s *store.State) ([]model.VIP, error) {
		vip, err := choose(s)
		written, version, record = s.VIPs.At(name), network.VersionBefore(s, s.Written.At(name)), s.Records.At(name)
		return []model.VIP{vip}, err
	})
	if err != nil {
		return nil, 0, apierr.ToConnect(apierr.TrimField("vips[0].", err))
	}
	if len(done.written) > 0 { // else it was so already
		written, record = done.written[0], done.records[name]
	}
	s := m.view()
	p := m.vipWithStatus(s, written, answering.New(m.Reported, s))
	p.ResourceVersion = network.VersionOf(done.vips[0].GetChange(), done.generation, version)
	p.CreateTime, p.UpdateTime, p.UpdatedBy = timestamppb.New(record.Created), timestamppb.New(record.Updated), record.By
	return p, uint64(done.generation), nil
}

// DeleteVIP deletes a VIP with its tables.
func (m *VIPs) DeleteVIP(ctx context.Context, r *weirv1.DeleteVIPRequest) (*weirv1.DeleteVIPResponse, error) {
	var gone model.VIP
	generation, err := m.Store.Update(ctx, func(s *store.State) (store.Change, error) {
		if err := current(ctx, s, r.GetName(), r.GetResourceVersion()); err != nil {
			return store.Change{}, err
		}
		// The name may have come to another tenant since the call was permitted.
		if err := authz.PermitVIP(trust.FromContext(ctx), s, trust.Operator, r.GetName()); err != nil {
			return store.Change{}, err
		}
		gone = s.VIPs.At(r.GetName())
		return store.Change{
			DeleteVIPs: []string{gone.Name}, DeleteTables: desired.RemovedEndpoints(gone, model.VIP{}),
			Ports: portsAfter(s, nil, []string{gone.Name}, m.Now()),
		}, nil
	})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	m.Log.InfoContext(ctx, "VIP deleted", "vip", r.GetName(), "generation", generation)
	m.Recorder.RecordCall(ctx, eventlog.Event{
		Kind: events.KindVIP, Object: gone.Name, Tenant: gone.Tenant, Reason: reason.Deleted,
		Message: fmt.Sprintf("deleted; %s is free", gone.Address),
	})
	return &weirv1.DeleteVIPResponse{Generation: uint64(generation)}, nil
}

// current holds that the VIP is there, and of the version, unless that is 0.
func current(ctx context.Context, s *store.State, name string, version uint64) error {
	there := uint64(s.Written.At(name))
	switch {
	case there == 0:
		return apierr.NotFound("VIP", name, s.VIPs, authz.CanViewVIP(ctx))
	case version == 0 || version == there:
		return nil
	}
	record := s.Records.At(name)
	return apierr.VersionConflict("VIP "+name, there, version, record)
}
