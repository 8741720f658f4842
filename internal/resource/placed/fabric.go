// Package placed serves the fabric to users, and what placement makes of it: what WeirService reads and writes of them.
package placed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/resource/network"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/eventlog"
)

// Fabrics is the network of the data center, with its calls.
type Fabrics struct {
	Store    *store.Store
	Recorder *events.Recorder
	Log      *slog.Logger
}

// errDryRun ends an update that is not to be written.
var errDryRun = errors.New("dry run")

// UpdateFabric makes the fabric, or replaces it.
func (m *Fabrics) UpdateFabric(ctx context.Context, r *weirv1.UpdateFabricRequest) (*weirv1.UpdateFabricResponse, error) {
	if err := errors.Join(compile.Known(r), apierr.CheckName(r.GetName(), r.GetFabric().GetName())); err != nil {
		return nil, apierr.ToConnect(err)
	}
	if r.GetFabric() != nil {
		r.Fabric.Name = r.GetName()
	}
	kept, err := compile.NewFabric(r.GetFabric())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	var before model.Generation
	change := ""
	generation, err := m.Store.Update(ctx, func(s *store.State) (store.Change, error) {
		if change, err = changeOf(s, kept, r.GetFabric().GetResourceVersion()); err != nil {
			return store.Change{}, err
		}
		before = network.VersionBefore(s, s.Fabrics.At(r.GetName()).Written)
		switch {
		case r.GetDryRun():
			return store.Change{}, errDryRun
		case change == rpc.Unchanged:
			return store.Change{}, nil
		}
		return store.Change{Fabrics: []compile.KeptFabric{kept}}, nil
	})
	if err != nil && !errors.Is(err, errDryRun) {
		return nil, apierr.ToConnect(err)
	}
	response := &weirv1.UpdateFabricResponse{Fabric: proto.CloneOf(kept.Message), Change: change}
	if r.GetDryRun() {
		response.Generation, response.Fabric.ResourceVersion = uint64(m.Store.State().Generation), uint64(before)
		return response, nil
	}
	response.Generation, response.Fabric.ResourceVersion = uint64(generation), network.VersionOf(change, generation, before)
	if change != rpc.Unchanged {
		f := kept.Network
		m.Log.InfoContext(ctx, "fabric applied", "name", r.GetName(), "change", change, "generation", generation)
		m.Recorder.RecordCall(ctx, eventlog.Event{
			Kind: events.KindFabric, Object: r.GetName(), Reason: reason.OfChange[change],
			Message: fmt.Sprintf("fabric %s: %d switches, %d links, %d racks", change, len(f.Switches), len(f.Links)/2, len(f.Racks)),
		})
	}
	return response, nil
}

// changeOf says what writing the fabric would be to s, or why it may not be written.
func changeOf(s *store.State, kept compile.KeptFabric, version uint64) (string, error) {
	name := kept.Message.GetName()
	for other := range s.Fabrics.Keys() {
		if other != name {
			return "", &model.FieldError{Field: "name", Reason: fmt.Sprintf("must be %s: there is one fabric at most, delete that before", other)}
		}
	}
	old, there := s.Fabrics.Get(name)
	if version != 0 {
		if err := current(s, name, version); err != nil {
			return "", err
		}
	}
	switch {
	case !there:
		return rpc.Created, nil
	case proto.Equal(old.Message, kept.Message):
		return rpc.Unchanged, nil
	}
	return rpc.Updated, nil
}

// current holds that the fabric is there, and of the version, unless that is 0.
func current(s *store.State, name string, version uint64) error {
	f, there := s.Fabrics.Get(name)
	switch {
	case !there:
		return apierr.NotFound("fabric", name, s.Fabrics, func(store.Fabric) bool { return true })
	case version == 0 || version == uint64(f.Written):
		return nil
	}
	return apierr.VersionConflict("fabric "+name, uint64(f.Written), version, codec.Record{})
}

// DeleteFabric deletes a fabric.
func (m *Fabrics) DeleteFabric(ctx context.Context, r *weirv1.DeleteFabricRequest) (*weirv1.DeleteFabricResponse, error) {
	generation, err := m.Store.Update(ctx, func(s *store.State) (store.Change, error) {
		return store.Change{DeleteFabrics: []string{r.GetName()}}, current(s, r.GetName(), r.GetResourceVersion())
	})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	m.Log.InfoContext(ctx, "fabric deleted", "name", r.GetName(), "generation", generation)
	m.Recorder.RecordCall(ctx, eventlog.Event{Kind: events.KindFabric, Object: r.GetName(), Reason: reason.Deleted, Message: "fabric deleted"})
	return &weirv1.DeleteFabricResponse{}, nil
}

// message is a fabric as users are shown it.
func message(f store.Fabric) *weirv1.Fabric {
	p := proto.CloneOf(f.Message)
	p.ResourceVersion = uint64(f.Written)
	return p
}

// ListFabrics lists fabrics by name.
func (m *Fabrics) ListFabrics(context.Context, *weirv1.ListFabricsRequest) (*weirv1.ListFabricsResponse, error) {
	response := &weirv1.ListFabricsResponse{}
	for f := range m.Store.State().Fabrics.Values() {
		response.Fabrics = append(response.Fabrics, message(f))
	}
	return response, nil
}

// GetFabric returns one fabric.
func (m *Fabrics) GetFabric(_ context.Context, r *weirv1.GetFabricRequest) (*weirv1.GetFabricResponse, error) {
	s := m.Store.State()
	if err := current(s, r.GetName(), 0); err != nil {
		return nil, apierr.ToConnect(err)
	}
	return &weirv1.GetFabricResponse{Fabric: message(s.Fabrics.At(r.GetName()))}, nil
}
