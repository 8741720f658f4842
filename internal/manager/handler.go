package manager

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirlb/weir/api/openapi"
	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

// maxMessage bounds a request, in bytes.
const maxMessage = 64 << 20

// handler serves gRPC, gRPC-Web, Connect and REST from the same two services.
func (m *Manager) handler() (http.Handler, error) {
	options := connect.WithHandlerOptions(connect.WithReadMaxBytes(maxMessage), connect.WithCodec(rpc.StrictJSON{}))
	mux := http.NewServeMux()
	mux.Handle(weirv1connect.NewWeirServiceHandler(m, options))
	mux.Handle(weirv1connect.NewSyncServiceHandler(m, options))
	gateway := runtime.NewServeMux(
		runtime.WithErrorHandler(restError),
		runtime.WithRoutingErrorHandler(restRouting),
		// A POST of a form to a path that has only GET is not a GET.
		runtime.WithDisablePathLengthFallback(),
		// As the default, but a misspelled field is refused.
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.JSONPb{
			MarshalOptions: protojson.MarshalOptions{EmitUnpopulated: true},
		}),
	)
	if err := weirv1.RegisterWeirServiceHandlerServer(context.Background(), gateway, m); err != nil {
		return nil, err
	}
	mux.Handle("/v1/", http.MaxBytesHandler(gateway, maxMessage))
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(openapi.Document) //nolint:errcheck // the client is gone: nobody is left to tell
	})
	mux.HandleFunc("GET /healthz", m.healthz)
	return mux, nil
}

// healthz says whether the store answers.
func (m *Manager) healthz(w http.ResponseWriter, r *http.Request) {
	if err := m.store.Ping(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Write([]byte("ok\n")) //nolint:errcheck // the client is gone: nobody is left to tell
}

// restError writes an error of the services as REST does, with the details that it has as gRPC.
func restError(
	ctx context.Context, mux *runtime.ServeMux, marshaler runtime.Marshaler,
	w http.ResponseWriter, r *http.Request, err error,
) {
	var refused *connect.Error
	if errors.As(err, &refused) {
		p := &statuspb.Status{Code: int32(refused.Code()), Message: refused.Message()}
		for _, detail := range refused.Details() {
			if value, err := detail.Value(); err == nil {
				if packed, err := anypb.New(value); err == nil {
					p.Details = append(p.Details, packed)
				}
			}
		}
		err = status.ErrorProto(p)
	}
	runtime.DefaultHTTPErrorHandler(ctx, mux, marshaler, w, r, err)
}

// restRouting answers a request that no call takes.
func restRouting(
	ctx context.Context, mux *runtime.ServeMux, marshaler runtime.Marshaler,
	w http.ResponseWriter, r *http.Request, code int,
) {
	if code != http.StatusMethodNotAllowed {
		runtime.DefaultRoutingErrorHandler(ctx, mux, marshaler, w, r, code)
		return
	}
	// The gateway's own answer is 501, as if the server were at fault.
	restError(ctx, mux, marshaler, w, r, &runtime.HTTPStatusError{
		HTTPStatus: code, Err: status.Errorf(codes.Unimplemented, "%s is not for %s: see /openapi.json", r.Method, r.URL.Path),
	})
}

// refusal makes the answer to a call of err: what a user can mend is told as such.
func refusal(err error) error {
	var refused *connect.Error
	switch {
	case errors.As(err, &refused):
		return refused
	case len(model.FieldErrors(err)) > 0:
		return rpc.NewError(connect.CodeInvalidArgument, err)
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, err)
	}
	return connect.NewError(connect.CodeUnavailable, err)
}
