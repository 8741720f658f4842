package apiserver

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/audit"
	"github.com/weirlb/weir/internal/connlimit"
	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
	"github.com/weirlb/weir/internal/webui"
	"github.com/weirlb/weir/internal/webui/origin"
)

// firstMessageKey is of the function that lifts the read deadline of a stream at its first message.
type firstMessageKey struct{}

const nosniff = "X-Content-Type-Options"

// admission says who makes each request, and takes what it needs before its body is read.
func (s *Server) admission(next http.Handler, procedureOf func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Browsers neither keep an answer nor guess what it is. The page's files say otherwise.
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set(nosniff, "nosniff")
		// Before it is asked whose session it is: one that ends from here on ends the request.
		within, unused := s.sessions.Use(r)
		defer unused()
		caller := s.callers.identify(r)
		if !caller.Anonymous() {
			connlimit.Authenticated(r.Context())
		}
		c := audit.NewCall(caller)
		s.callers.handed(r)
		if !caller.Anonymous() { // who signs in anew goes on without the session that has just ended
			r = within
		}
		ctx := audit.WithCall(trust.WithIdentity(r.Context(), caller), c)
		ctx = context.WithValue(ctx, firstMessageKey{}, func() {
			http.NewResponseController(w).SetReadDeadline(time.Time{}) //nolint:errcheck // not all writers have one
		})
		r = r.WithContext(ctx)
		answer := &watchedWriter{ResponseWriter: w, slow: s.SlowReader}
		s.boundReading(w, r, caller)
		leave, err := s.entered(w, r, caller, procedureOf(r))
		if err != nil {
			c.Refuse(r.URL.Path, err)
			apierr.Write(answer, r, err)
		} else {
			func() {
				defer leave()
				next.ServeHTTP(answer, r)
			}()
		}
		s.Audit.Record(c, r.URL.Path, answer.Header(), answer.code)
	})
}

// entered takes what a request needs, and returns what gives it back, or says why it is refused before its body is read.
func (s *Server) entered(w http.ResponseWriter, r *http.Request, caller trust.Identity, procedure string) (leave func(), err error) {
	if err := admissible(r, caller); err != nil {
		return nil, err
	}
	if caller.Anonymous() { // before the first byte is waited for
		if leave, err = s.enterRequest(r, caller, procedure, r.ContentLength); err != nil {
			return nil, err
		}
	}
	size, err := oversized(w, r, caller, procedure)
	switch {
	case err != nil && leave != nil:
		leave()
		return nil, err
	case err != nil || leave != nil:
		return leave, err
	}
	return s.enterRequest(r, caller, procedure, size)
}

// enterRequest takes what a request needs of what its kind of callers has, and returns what gives it back: before its body is
// read, or parsed.
func (s *Server) enterRequest(r *http.Request, caller trust.Identity, procedure string, size int64) (leave func(), err error) {
	if caller.Anonymous() {
		return s.unauthenticated.enter(r.RemoteAddr, s.Now())
	}
	if streams(r.URL.Path) || s.Identity.Insecure() {
		return func() {}, nil
	}
	kind, who := limits.KindOf(caller), caller.Share()
	b := limits.Callers[kind]
	if kind == limits.User && who != caller.String() {
		b = limits.Callers[limits.Tenant]
	}
	refuse := func(why string) error {
		return rpc.RetryAfter(connect.CodeResourceExhausted, errors.New(why+": try again"), time.Second)
	}
	leaveRequest := s.requests.Acquire(who, 0, b.Each)
	if leaveRequest == nil {
		return nil, refuse(who + " has too many requests under way")
	}
	if !isLarge(r, limits.KindOf(caller), procedure, size) {
		return leaveRequest, nil
	}
	leaveLarge := s.large.Acquire(who, limits.LargeAll, limits.LargeEach)
	if leaveLarge == nil {
		leaveRequest()
		return nil, refuse("too many large requests are under way")
	}
	return func() { leaveRequest(); leaveLarge() }, nil
}

// packed says whether the body of a request is compressed.
func packed(r *http.Request) bool {
	for _, header := range []string{"Content-Encoding", "Grpc-Encoding", "Connect-Content-Encoding"} {
		if encoding := r.Header.Get(header); encoding != "" && encoding != "identity" {
			return true
		}
	}
	return false
}

// boundReading bounds the time in which the body of a request must come. What streams has it for its first message, and
// goes on long after it.
func (s *Server) boundReading(w http.ResponseWriter, r *http.Request, caller trust.Identity) {
	within := limits.Callers[limits.KindOf(caller)].Sending
	if caller.Anonymous() {
		within = s.UnauthenticatedTime
		if r.ProtoMajor == 1 || connlimit.Age(r.Context()) > s.UnauthenticatedTime {
			// Of HTTP/1, the server would wait for the rest of the body. HTTP/2 ends streams by themselves, and a browser loads
			// the page by one connection: that is closed when it is old, so that strangers don't keep their places.
			w.Header().Set("Connection", "close")
		}
	}
	if isWatch(r.URL.Path) { // it has no body, and HTTP/1 would take the end of its time for the end of the connection
		return
	}
	if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(within)); err != nil {
		s.Log.Debug("can't bound the time of a request", "err", err)
	}
}

// admissible says why a request is refused before its body is read.
func admissible(r *http.Request, caller trust.Identity) error {
	joins := r.URL.Path == weirv1connect.TrustServiceJoinProcedure
	switch {
	case origin.Foreign(r) && !webui.IsPage(r):
		return connect.NewError(connect.CodePermissionDenied, errors.New("a page of another origin may not call this API"))
	case caller.Anonymous() && !joins && !open(r.URL.Path):
		return apierr.Unauthenticated(caller)
	case caller.Anonymous() && r.ContentLength > limits.Unknown:
		return connect.NewError(connect.CodeResourceExhausted,
			fmt.Errorf("the request has %d bytes, more than %d: send a token, a name and a request for a certificate alone", r.ContentLength, limits.Unknown))
	case joins && packed(r):
		return connect.NewError(connect.CodeUnimplemented, errors.New("a join may not be compressed"))
	}
	return nil
}

// oversized returns the size that a request tells, negative if it tells none, or says why it is refused by it, and bounds
// what a stranger may send beyond it.
// gRPC tells the size in the first bytes of the body, as package connect, which would refuse it too, reads them.
func oversized(w http.ResponseWriter, r *http.Request, caller trust.Identity, procedure string) (size int64, err error) {
	size = r.ContentLength
	if caller.Anonymous() {
		r.Body = http.MaxBytesReader(w, r.Body, limits.Unknown)
	}
	if isGRPC(r) && !streams(r.URL.Path) {
		body := bufio.NewReaderSize(r.Body, limits.MessageHead)
		message := io.Reader(body)
		if head, err := body.Peek(limits.MessageHead); err == nil {
			size = int64(binary.BigEndian.Uint32(head[1:]))
			// Connect parses a second message before it refuses it, and nobody has looked at that: it gets a byte of it.
			message = io.LimitReader(body, limits.MessageHead+size+1)
		}
		r.Body = struct {
			io.Reader
			io.Closer
		}{message, r.Body}
	}
	if most := int64(limits.Of(procedure).Bytes); size > most && strings.HasPrefix(r.URL.Path, "/weir.v1.") { // REST has an answer of its own
		return size, apierr.TooLarge(size, most)
	}
	return size, nil
}

// open are the paths that anybody may read: they hold nothing of the installation, or ask who calls themselves.
func open(path string) bool {
	return path == "/healthz" || path == "/openapi.json" || webui.Serves(path)
}
