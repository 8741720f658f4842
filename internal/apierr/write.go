package apierr

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// Write answers a request with err, in the protocol of the request.
func Write(w http.ResponseWriter, r *http.Request, err error) {
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		w.Header().Set("Connection", "close") // or the server would wait for the rest of the body before it answers
	}
	if writer := connect.NewErrorWriter(); writer.IsSupported(r) {
		writer.Write(w, r, err) //nolint:errcheck // the client is gone: nobody is left to tell
		return
	}
	gateway := runtime.NewServeMux()
	_, marshaler := runtime.MarshalerForRequest(gateway, r)
	WriteREST(r.Context(), gateway, marshaler, w, r, err)
}

// WriteREST writes an error of the services as REST does, with the details that it has as gRPC.
func WriteREST(
	ctx context.Context, mux *runtime.ServeMux, marshaler runtime.Marshaler,
	w http.ResponseWriter, r *http.Request, err error,
) {
	var refused *connect.Error
	if strings.HasSuffix(status.Convert(err).Message(), (&http.MaxBytesError{}).Error()) { // the gateway keeps the text only
		err = &runtime.HTTPStatusError{
			HTTPStatus: http.StatusRequestEntityTooLarge,
			Err:        status.Error(codes.ResourceExhausted, "the request is too large: apply fewer VIPs at a time"),
		}
	}
	if errors.As(err, &refused) {
		err = status.ErrorProto(Status(refused))
	}
	runtime.DefaultHTTPErrorHandler(ctx, mux, marshaler, w, r, err)
}

// Status is an error of the services as the body of a REST answer.
func Status(err error) *statuspb.Status {
	var refused *connect.Error
	if !errors.As(err, &refused) {
		return status.Convert(err).Proto()
	}
	p := &statuspb.Status{Code: int32(refused.Code()), Message: refused.Message()}
	for _, detail := range refused.Details() {
		if value, err := detail.Value(); err == nil {
			if packed, err := anypb.New(value); err == nil {
				p.Details = append(p.Details, packed)
			}
		}
	}
	return p
}
