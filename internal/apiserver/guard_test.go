package apiserver

import (
	"context"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/audit"
	"github.com/weirlb/weir/internal/store/truststore"
	"github.com/weirlb/weir/internal/trust"
)

// lateStream is a stream whose first message comes when the test says so.
type lateStream struct {
	connect.StreamingHandlerConn

	comes chan *weirv1.AcknowledgeMuxRequest
}

func (*lateStream) Spec() connect.Spec {
	return connect.Spec{Procedure: weirv1connect.SyncServiceAcknowledgeMuxProcedure, StreamType: connect.StreamTypeClient}
}

func (l *lateStream) Receive(message any) error {
	proto.Merge(message.(proto.Message), <-l.comes) //nolint:forcetypeassert // it is the message of the procedure
	return nil
}

// A message that comes when the handler of its stream has returned touches nothing of the request: HTTP/2's writer is gone
// then, and its deadline ended the manager; HTTP/1's connection is of the next request; and the record of the call is written.
func TestAMessageAfterTheEndOfItsStream(t *testing.T) {
	mux := trust.Identity{Kind: trust.Mux, Name: "mux1", Method: trust.Insecure}
	ctx := audit.WithCall(trust.WithIdentity(t.Context(), mux), audit.NewCall(mux))
	ctx = context.WithValue(ctx, firstMessageKey{}, func() { t.Error("the deadline of the request is changed") })
	conn := &lateStream{comes: make(chan *weirv1.AcknowledgeMuxRequest)}
	received := make(chan error, 1)
	trusted := func() (*truststore.Trust, <-chan struct{}) { return &truststore.Trust{}, nil }
	server := &Server{Config: &Config{}, open: openStreams{trusted: trusted}}
	serve := guard{server}.WrapStreamingHandler(func(_ context.Context, stream connect.StreamingHandlerConn) error {
		go func() { received <- stream.Receive(&weirv1.AcknowledgeMuxRequest{}) }()
		return nil
	})
	if err := serve(ctx, conn); err != nil {
		t.Fatal(err)
	}
	conn.comes <- &weirv1.AcknowledgeMuxRequest{Name: "mux1", Generation: 1}
	if err := <-received; connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("the message was received, with %v", err)
	}
}
