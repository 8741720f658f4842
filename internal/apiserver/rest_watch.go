package apiserver

import (
	"context"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/audit"
)

// The paths of the watches of REST.
const (
	watchVIPsPath   = restRoot + "vips:watch"
	watchEventsPath = restRoot + "events:watch"
	watchNodesPath  = restRoot + "nodes:watch"
	watchStatusPath = restRoot + "status:watch"
	watchRatesPath  = restRoot + "rates:watch"
)

// A watch of REST: the procedure that it is, its request, and what fills the stream until send fails.
type restWatch struct {
	procedure string
	request   func() proto.Message
	run       func(ctx context.Context, request proto.Message, send func(proto.Message) error) error
}

// restWatches are the watches by path.
func (s *Server) restWatches() map[string]restWatch {
	return map[string]restWatch{
		watchVIPsPath:   newRESTWatch(weirv1connect.WeirServiceWatchVIPsProcedure, &weirv1.WatchVIPsRequest{}, s.Resources.EachVIP),
		watchEventsPath: newRESTWatch(weirv1connect.WeirServiceWatchEventsProcedure, &weirv1.WatchEventsRequest{}, s.Resources.EachEvent),
		watchNodesPath:  newRESTWatch(weirv1connect.WeirServiceWatchNodesProcedure, &weirv1.WatchNodesRequest{}, s.Resources.EachNode),
		watchStatusPath: newRESTWatch(weirv1connect.WeirServiceWatchStatusProcedure, &weirv1.WatchStatusRequest{}, s.Resources.EachStatus),
		watchRatesPath:  newRESTWatch(weirv1connect.WeirServiceWatchRatesProcedure, &weirv1.WatchRatesRequest{}, s.Resources.EachRate),
	}
}

// newRESTWatch is the watch of a procedure; empty is a request of it.
func newRESTWatch[R, P proto.Message](procedure string, empty R, each func(context.Context, R, func(P) error) error) restWatch {
	return restWatch{
		procedure: procedure,
		request:   func() proto.Message { return empty.ProtoReflect().New().Interface() },
		run: func(ctx context.Context, r proto.Message, send func(proto.Message) error) error {
			return each(ctx, r.(R), func(p P) error { return send(p) }) //nolint:forcetypeassert // made above
		},
	}
}

// guardedWatch runs a watch that the caller may open, for as long as it may hold it.
func (s *Server) guardedWatch(ctx context.Context, watch restWatch, request proto.Message, send func(proto.Message) error) error {
	ctx, end := s.open.hold(ctx)
	defer end()
	audit.Begin(ctx, watch.procedure, request)
	err := s.admit(ctx, watch.procedure, request)
	if err == nil {
		err = ended(ctx, watch.run(ctx, request, send))
	}
	audit.End(ctx, err)
	return err
}

// watchHandler answers with one JSON object a line. An error before the first line is an answer as any; a later
// one is a last line {"error": ...}, with what the answer would have had.
func (s *Server) watchHandler(watch restWatch, gateway *runtime.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, marshaler := runtime.MarshalerForRequest(gateway, r)
		request := watch.request()
		if err := runtime.PopulateQueryParameters(request, r.URL.Query(), &utilities.DoubleArray{}); err != nil {
			apierr.WriteREST(r.Context(), gateway, marshaler, w, r, badQuery(err))
			return
		}
		begun := false
		control := http.NewResponseController(w)
		line := func(text []byte) error {
			if !begun {
				begun = true
				w.Header().Set("Content-Type", "application/x-ndjson")
				w.WriteHeader(http.StatusOK)
			}
			if _, err := w.Write(append(text, '\n')); err != nil {
				return err
			}
			return control.Flush()
		}
		err := s.guardedWatch(r.Context(), watch, request, func(p proto.Message) error {
			text, err := marshaler.Marshal(p)
			if err != nil {
				return err
			}
			return line(text)
		})
		switch {
		case err == nil || r.Context().Err() != nil:
		case !begun:
			apierr.WriteREST(r.Context(), gateway, marshaler, w, r, apierr.ToConnect(err))
		default:
			if text, err := marshaler.Marshal(map[string]any{"error": apierr.Status(apierr.ToConnect(err))}); err == nil {
				line(text) //nolint:errcheck // the client is gone: nobody is left to tell
			}
		}
	})
}
