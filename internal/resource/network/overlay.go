package network

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/desired/admission"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/eventlog"
)

// UpdateOverlay makes the overlay, or replaces it.
func (m *Networks) UpdateOverlay(ctx context.Context, r *weirv1.UpdateOverlayRequest) (*weirv1.UpdateOverlayResponse, error) {
	if err := compile.Known(r); err != nil {
		return nil, apierr.ToConnect(err)
	}
	if r.GetOverlay() == nil {
		return nil, apierr.ToConnect(&model.FieldError{Field: "overlay", Reason: "is required"})
	}
	if r.GetOverlay().GetName() == "" {
		r.Overlay.Name = vnet.OverlayName
	}
	overlay, err := compile.Overlay(r.GetOverlay())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	var before model.Generation
	done, generation, err := m.write(ctx, func(s *store.State) (batch Batch, err error) {
		before = VersionBefore(s, s.OverlayWritten)
		if version := r.GetOverlay().GetResourceVersion(); version != 0 {
			err = currentOverlay(s, version)
		}
		return Batch{Overlay: &overlay}, err
	})
	if err != nil {
		return nil, apierr.ToConnect(apierr.TrimField("overlays[0].", err))
	}
	written := compile.OverlayMessage(overlay)
	written.ResourceVersion = VersionOf(done.Overlays[0].GetChange(), generation, before)
	return &weirv1.UpdateOverlayResponse{Overlay: written, Generation: uint64(generation)}, nil
}

var errNoOverlay = connect.NewError(connect.CodeNotFound, errors.New("there is no overlay: apply one"))

// currentOverlay holds that there is an overlay, of the version, unless that is 0.
func currentOverlay(s *store.State, version uint64) error {
	there := uint64(s.OverlayWritten)
	switch {
	case s.Networks.Overlay == nil:
		return errNoOverlay
	case version == 0 || version == there:
		return nil
	}
	return apierr.VersionConflict("the overlay", there, version, codec.Record{})
}

// overlayMessage writes the overlay with all that is output only; nil: there is none.
func overlayMessage(s *store.State) *weirv1.Overlay {
	if s.Networks.Overlay == nil {
		return nil
	}
	p := compile.OverlayMessage(*s.Networks.Overlay)
	p.ResourceVersion = uint64(s.OverlayWritten)
	return p
}

// GetOverlay returns the overlay.
func (m *Networks) GetOverlay(context.Context, *weirv1.GetOverlayRequest) (*weirv1.GetOverlayResponse, error) {
	p := overlayMessage(m.Store.State())
	if p == nil {
		return nil, errNoOverlay
	}
	return &weirv1.GetOverlayResponse{Overlay: p}, nil
}

// DeleteOverlay deletes the overlay while no VIP is attached to a network.
func (m *Networks) DeleteOverlay(ctx context.Context, r *weirv1.DeleteOverlayRequest) (*weirv1.DeleteOverlayResponse, error) {
	generation, err := m.Store.Update(ctx, func(s *store.State) (store.Change, error) {
		if err := currentOverlay(s, r.GetResourceVersion()); err != nil {
			return store.Change{}, err
		}
		if err := admission.OverlayRemoval(s.State); err != nil {
			return store.Change{}, rpc.NewError(connect.CodeFailedPrecondition, err)
		}
		return store.Change{DeleteOverlay: true}, nil
	})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	m.Log.InfoContext(ctx, "overlay deleted", "generation", generation)
	m.Recorder.RecordCall(ctx, eventlog.Event{Kind: events.KindOverlay, Object: vnet.OverlayName, Reason: reason.Deleted, Message: "overlay deleted"})
	return &weirv1.DeleteOverlayResponse{}, nil
}
