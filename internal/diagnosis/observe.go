package diagnosis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

// Bounds of Observe.
const (
	maxObservedMuxes = 64
	maxSeenFlows     = 1 << 16         // that are remembered, so that each is told once
	observedSnap     = 192             // bytes of a packet: headers of all layers that are told
	endTime          = 5 * time.Second // of a mux's capture after the observation, which ends it
)

// observation is one call of Observe.
type observation struct {
	*Service
	request  *weirv1.ObserveRequest
	count    int
	duration time.Duration
	parts    chan observedPart
	seen     map[seenFlow]string // the last verdict of each
	lost     map[string]uint64   // by mux
}

// observedPart is what one mux says.
type observedPart struct {
	mux   string
	from  *weirv1.CaptureResponse // nil: it ends
	ended error
}

// seenFlow is a flow at one mux.
type seenFlow struct {
	mux                 string
	protocol            uint8
	source, destination netip.AddrPort
}

func (m *Service) readObserve(r *weirv1.ObserveRequest) (*observation, error) {
	count := cmp.Or(r.GetCount(), wire.DefaultObserveCount)
	capture, err := wire.CaptureFromProto(&weirv1.CaptureRequest{Filter: r.GetFilter(), Count: count, Duration: r.GetDuration()})
	return &observation{
		Service: m, request: r, count: capture.Count, duration: capture.Duration,
		parts: make(chan observedPart), seen: map[seenFlow]string{}, lost: map[string]uint64{},
	}, err
}

// muxesToObserve are those of the request, or all that are connected.
func muxesToObserve(s *store.State, names []string) ([]string, error) {
	if len(names) > 0 {
		for i, name := range names {
			if node, there := s.Nodes.Get(name); !there || node.Role != model.RoleMux {
				return nil, apierr.NotFound("mux", name, s.Nodes, func(n model.Node) bool { return n.Role == model.RoleMux })
			}
			if slices.Contains(names[:i], name) {
				return nil, apierr.ToConnect(&model.FieldError{Field: fmt.Sprintf("muxes[%d]", i), Reason: "is " + name + " again"})
			}
		}
	} else {
		for n := range s.MuxNodes() {
			if s.Streams.At(n.Name) {
				names = append(names, n.Name)
			}
		}
	}
	switch {
	case len(names) == 0:
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("no mux is connected"))
	case len(names) > maxObservedMuxes:
		return nil, apierr.ToConnect(&model.FieldError{Field: "muxes", Reason: fmt.Sprintf("must be at most %d, are %d: name some", maxObservedMuxes, len(names))})
	}
	return names, nil
}

// Observe streams what comes to muxes, and what becomes of it. A mux that can't be observed does not end it: it is told.
func (m *Service) Observe(ctx context.Context, r *weirv1.ObserveRequest, stream *connect.ServerStream[weirv1.ObserveResponse]) error {
	o, err := m.readObserve(r)
	if err != nil {
		return apierr.ToConnect(err)
	}
	muxes, err := muxesToObserve(m.Store.State(), r.GetMuxes())
	if err != nil {
		return err
	}
	return o.run(ctx, muxes, stream.Send)
}

func (o *observation) run(caller context.Context, muxes []string, send func(*weirv1.ObserveResponse) error) error {
	ctx, cancel := context.WithTimeout(caller, o.duration)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	copies := uint32(wire.MaxCaptureCount)
	if !o.request.GetConnections() {
		copies = min(copies, 2*uint32(o.count)) // as it came, and as it left
	}
	for _, mux := range muxes {
		running.Go(func() { o.follow(ctx, mux, copies) })
	}
	for left := len(muxes); left > 0; {
		var part observedPart
		select {
		case part = <-o.parts:
		case <-ctx.Done():
			if err := caller.Err(); err != nil {
				return apierr.ToConnect(err)
			}
			return o.tellSilent(muxes, send)
		}
		if part.from == nil {
			left--
		}
		response := o.respond(part)
		if len(response.GetPackets())+len(response.GetMuxes()) == 0 {
			continue
		}
		if err := send(response); err != nil {
			return err
		}
		if o.count == 0 {
			return nil
		}
	}
	return nil
}

// tellSilent tells of muxes that have not answered at all until the end.
func (o *observation) tellSilent(muxes []string, send func(*weirv1.ObserveResponse) error) error {
	response := &weirv1.ObserveResponse{}
	for _, mux := range muxes {
		if _, known := o.lost[mux]; !known {
			response.Muxes = append(response.Muxes, &weirv1.ObservedMux{Name: mux, Reason: "it does not answer"})
		}
	}
	if len(response.GetMuxes()) == 0 {
		return nil
	}
	return send(response)
}

// follow captures on one mux, so many copies of packets, until ctx or the capture ends.
func (o *observation) follow(ctx context.Context, mux string, copies uint32) {
	tell := func(part observedPart) error {
		select {
		case o.parts <- part:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := o.capture(ctx, &weirv1.CaptureRequest{
		Mux: mux, Filter: o.request.GetFilter(), Count: copies, SnapLength: observedSnap,
		Duration: durationpb.New(min(o.duration+endTime, wire.MaxCaptureDuration)),
	}, o.ofHolder, func(r *weirv1.CaptureResponse) error { return tell(observedPart{mux: mux, from: r}) })
	_ = tell(observedPart{mux: mux, ended: err}) // or nobody waits for it any more
}

// respond is what the caller is told of a part.
func (o *observation) respond(part observedPart) *weirv1.ObserveResponse {
	response := &weirv1.ObserveResponse{}
	_, known := o.lost[part.mux]
	switch {
	case part.from != nil && !known: // the mux has taken the task
		response.Muxes = []*weirv1.ObservedMux{{Name: part.mux}}
	case part.ended != nil:
		response.Muxes = []*weirv1.ObservedMux{{Name: part.mux, Reason: events.CutMessage(reasonOf(part.ended))}}
	case part.from == nil:
		response.Muxes = []*weirv1.ObservedMux{{Name: part.mux, Reason: "it has copied as many packets as one call may have"}}
	}
	o.lost[part.mux] = max(o.lost[part.mux], part.from.GetLost())
	for _, lost := range o.lost {
		response.Lost += lost
	}
	for _, p := range part.from.GetPackets() {
		if p.GetDirection() != wire.DirectionIn || o.count == 0 {
			continue
		}
		packet, flow := observe(part.mux, p)
		if o.request.GetConnections() && !o.isNew(flow, p.GetVerdict()) {
			continue
		}
		response.Packets = append(response.Packets, packet)
		o.count--
	}
	return response
}

// isNew says whether a flow was not seen yet with the verdict, and notes it.
func (o *observation) isNew(flow seenFlow, verdict string) bool {
	if verdict == "forward_known" { // that it was not looked up is chance
		verdict = "forward_flow"
	}
	if o.seen[flow] == verdict {
		return false
	}
	if len(o.seen) >= maxSeenFlows {
		clear(o.seen) // what goes on is told once more
	}
	o.seen[flow] = verdict
	return true
}

// reasonOf is an error as the caller is told of it beside others.
func reasonOf(err error) string {
	var refused *connect.Error
	if errors.As(err, &refused) {
		return refused.Message()
	}
	return err.Error()
}
