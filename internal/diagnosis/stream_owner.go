package diagnosis

import (
	"context"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/audit"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/trust"
)

// atHolder is a client of the manager that holds the mux's stream, and the context of a call by it for the same
// caller; nil if the call is for this manager, or was handed on to it.
func (m *Service) atHolder(ctx context.Context, s *store.State, mux string) (*rpc.Client, context.Context, error) {
	client, onBehalf, err := m.ofHolder(ctx, s, mux)
	if client != nil {
		audit.Elsewhere(ctx)
	}
	return client, onBehalf, err
}

// ofHolder is atHolder for a part of a call, which this manager carries out and records.
func (m *Service) ofHolder(ctx context.Context, s *store.State, mux string) (*rpc.Client, context.Context, error) {
	if isForwarded(ctx) {
		return nil, ctx, nil
	}
	name, there := m.StreamOwner(mux)
	if !there || s.Managers[name].Address == "" {
		return nil, ctx, nil
	}
	return m.onBehalf(ctx, s.Managers[name].Address)
}

// isForwarded says whether another manager has handed the call on.
func isForwarded(ctx context.Context) bool {
	call, ok := connect.CallInfoForHandlerContext(ctx)
	return ok && call.RequestHeader().Get(trust.ForwardedByHeader) != ""
}

// onBehalf is a client of another manager, and the context of a call by it for the same caller.
func (m *Service) onBehalf(ctx context.Context, manager string) (*rpc.Client, context.Context, error) {
	client, err := m.Peer(manager)
	if err != nil {
		return nil, ctx, err
	}
	encoded, err := trust.FromContext(ctx).Encode()
	if err != nil {
		return nil, ctx, err
	}
	ctx, call := connect.NewClientContext(ctx)
	call.RequestHeader().Set(trust.ForwardedByHeader, m.Name)
	call.RequestHeader().Set(trust.OnBehalfHeader, encoded)
	return client, ctx, nil
}

// relayCapture hands on what another manager captures.
func relayCapture(ctx context.Context, client *rpc.Client, r *weirv1.CaptureRequest, send func(*weirv1.CaptureResponse) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	from, err := client.Capture(ctx, r)
	if err != nil {
		return err
	}
	defer from.Close()
	for from.Receive() {
		if err := send(from.Msg()); err != nil {
			return err
		}
	}
	return from.Err()
}
