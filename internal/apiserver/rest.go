package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirlb/weir/api/openapi"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/typo"
)

// restRoot is the path below which REST is.
const restRoot = "/v1/"

// calls are what the OpenAPI document says of REST, by path and method.
type calls struct {
	Paths map[string]map[string]documentedCall
}

type documentedCall struct {
	Parameters []struct{ Name, In string }
}

// query are the parameters of a call's query.
func (c documentedCall) query() []string {
	var known []string
	for _, parameter := range c.Parameters {
		if parameter.In == "query" {
			known = append(known, parameter.Name)
		}
	}
	return known
}

// handleREST has mux serve REST. The gateway does the work; what it would let pass is refused before.
func (s *Server) handleREST(mux *http.ServeMux) error {
	gateway := runtime.NewServeMux(
		runtime.WithErrorHandler(apierr.WriteREST),
		runtime.WithRoutingErrorHandler(restRouting),
		// A POST of a form to a path that has only GET is not a GET.
		runtime.WithDisablePathLengthFallback(),
		// As the default, but a misspelled field is refused.
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.JSONPb{
			MarshalOptions: protojson.MarshalOptions{EmitDefaultValues: true},
		}),
	)
	if err := s.registerREST(gateway); err != nil {
		return err
	}
	document, err := openapi.Document()
	if err != nil {
		return err
	}
	var documented calls
	if err := json.Unmarshal(document, &documented); err != nil {
		return fmt.Errorf("read the OpenAPI document: %w", err)
	}
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(document) //nolint:errcheck // the client is gone: nobody is left to tell
	})
	procedures, watches := restProcedures(), s.restWatches()
	for path, methods := range documented.Paths {
		for method, call := range methods {
			known := call.query()
			pattern := strings.ToUpper(method) + " " + path
			serve := boundedBody(gateway, limits.Of(procedures[pattern]))
			if watch, is := watches[path]; is {
				serve = s.watchHandler(watch, gateway)
			}
			mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
				if err := unknownParameters(r.URL.Query(), known); err != nil {
					_, marshaler := runtime.MarshalerForRequest(gateway, r)
					apierr.WriteREST(r.Context(), gateway, marshaler, w, r, apierr.ToConnect(err))
					return
				}
				serve.ServeHTTP(w, r)
			})
		}
	}
	mux.HandleFunc(restRoot, func(w http.ResponseWriter, r *http.Request) {
		if allowed := allowed(mux, r.URL); len(allowed) > 0 {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			_, marshaler := runtime.MarshalerForRequest(gateway, r)
			restRouting(r.Context(), gateway, marshaler, w, r, http.StatusMethodNotAllowed)
			return
		}
		boundedBody(gateway, limits.Of("")).ServeHTTP(w, r)
	})
	return nil
}

// boundedBody holds the JSON of requests to what their procedure takes.
func boundedBody(next http.Handler, b limits.Request) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limited := http.MaxBytesReader(w, r.Body, int64(b.Bytes))
		r.Body = struct {
			io.Reader
			io.Closer
		}{limits.NewJSON(limited, b.Messages), limited}
		next.ServeHTTP(w, r)
	})
}

// restProcedures are the procedures of REST by method and path, as their annotations have them.
func restProcedures() map[string]string {
	all := map[string]string{}
	for _, service := range limits.Services() {
		for i := range service.Methods().Len() {
			method := service.Methods().Get(i)
			rule, _ := proto.GetExtension(method.Options(), annotations.E_Http).(*annotations.HttpRule)
			procedure := "/" + string(service.FullName()) + "/" + string(method.Name())
			for verb, path := range map[string]string{
				http.MethodGet: rule.GetGet(), http.MethodPut: rule.GetPut(), http.MethodPost: rule.GetPost(),
				http.MethodDelete: rule.GetDelete(), http.MethodPatch: rule.GetPatch(),
			} {
				if path != "" {
					all[verb+" "+path] = procedure
				}
			}
		}
	}
	return all
}

// procedureOf finds the procedure that a request is for, by the routes of REST; empty: none.
func procedureOf(routes *http.ServeMux) func(*http.Request) string {
	procedures := restProcedures()
	return func(r *http.Request) string {
		if !strings.HasPrefix(r.URL.Path, restRoot) {
			return r.URL.Path
		}
		_, pattern := routes.Handler(r)
		return procedures[pattern]
	}
}

// allowed returns the methods that a path of REST has.
func allowed(mux *http.ServeMux, path *url.URL) []string {
	var methods []string
	for _, method := range []string{http.MethodDelete, http.MethodGet, http.MethodPatch, http.MethodPost, http.MethodPut} {
		if _, pattern := mux.Handler(&http.Request{Method: method, URL: path}); pattern != restRoot {
			methods = append(methods, method)
		}
	}
	return methods
}

// unknownParameters refuses those of a query that are not known, which the gateway would pass over.
func unknownParameters(query url.Values, known []string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if slices.Contains(known, name) {
			continue
		}
		reason := "unknown parameter"
		if guess := typo.Nearest(name, known); guess != "" {
			reason += ", did you mean " + guess + "?"
		}
		errs = append(errs, &model.FieldError{Field: name, Reason: reason})
	}
	return errors.Join(errs...)
}

// badQuery is what a query that can't be read is answered with.
func badQuery(err error) error { return status.Error(codes.InvalidArgument, err.Error()) }

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
	apierr.WriteREST(ctx, mux, marshaler, w, r, &runtime.HTTPStatusError{
		HTTPStatus: code, Err: status.Errorf(codes.Unimplemented, "%s is not for %s: see /openapi.json", r.Method, r.URL.Path),
	})
}
