package muxd

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/wire"
)

// hearing is a manager that takes acknowledgements, until it refuses.
type hearing struct {
	weirv1connect.UnimplementedSyncServiceHandler

	heard   chan uint64
	refuses chan struct{} // closed: it does
}

func (h *hearing) AcknowledgeMux(
	_ context.Context, stream *connect.ClientStream[weirv1.AcknowledgeMuxRequest],
) (*weirv1.AcknowledgeMuxResponse, error) {
	for stream.Receive() {
		select {
		case <-h.refuses:
			return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the mux follows another manager"))
		case h.heard <- stream.Msg().GetGeneration():
		}
	}
	return &weirv1.AcknowledgeMuxResponse{}, stream.Err()
}

// What runs is acknowledged, and reported where a generation was rejected or the manager does not hear it.
func TestAcknowledge(t *testing.T) {
	h := &hearing{heard: make(chan uint64), refuses: make(chan struct{})}
	handlers := http.NewServeMux()
	handlers.Handle(weirv1connect.NewSyncServiceHandler(h))
	server := httptest.NewUnstartedServer(handlers)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	client, err := rpc.NewClient(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)

	b := newBench(t, true, nil)
	b.mux.config.Manager = client
	a := newAcknowledgements(b.mux)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	for _, anew := range []bool{false, false, true} {
		a.reconnect.Store(anew)
		if a.wake.Set(); <-h.heard != 7 {
			t.Error("it acknowledged another generation")
		}
	}
	if len(b.mux.reports.wake) > 0 {
		t.Error("it reports what it acknowledged")
	}
	b.mux.state.Reject(9, errors.New("endpoints[0].buckets: must be a power of two, are 3"))
	a.wake.Set()
	<-b.mux.reports.wake
	if err := b.mux.state.Apply(ctx, wire.MuxUpdate{Generation: 7}); err != nil { // nothing is rejected any more
		t.Fatal(err)
	}
	close(h.refuses)
	for reported := false; !reported; { // that it is refused shows at the next
		a.wake.Set()
		select {
		case <-b.mux.reports.wake:
			reported = true
		case <-h.heard:
		case <-t.Context().Done():
			t.Fatal("it does not report what nobody hears")
		case <-time.After(time.Millisecond):
		}
	}
}
