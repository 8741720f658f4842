package snatalloc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/audit"
	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/trust"
)

// errBusy refuses a request beyond the bound of requests under way.
func errBusy() error {
	return rpc.RefusePorts(rpc.PortsRate, busyRetry, errors.New("other requests for ports are under way, as many as may be: ask again"))
}

// MaxOpen is how many port requests this manager may have under way. While users' changes are congested the bound is
// one for all: each manager that hands requests on to the leader has its part of it.
func (a *Allocator) MaxOpen(s *store.State) int {
	switch {
	case !a.Store.Congested():
		return maxOpen
	case s.Leader == a.Name:
		return maxOpenCongested
	}
	return max(1, maxOpenCongested/max(1, len(s.Managers)))
}

// places is the same for the queue, and whether users' changes are congested.
func (a *Allocator) places() (n int, congested bool) {
	return a.MaxOpen(a.Store.State()), a.Store.Congested()
}

// Enter takes the place of a request, if it is one for ports, or answers that there is none: before it costs more
// than its answer, which is what decides when thousands come in a second. Only hosts have places, and only when the
// whole request is there; handedOn says that another manager handed it on. leave gives the place back.
func (a *Allocator) Enter(w http.ResponseWriter, r *http.Request, handedOn bool) (leave func(), ok bool) {
	if r.URL.Path != weirv1connect.SyncServiceAllocatePortsProcedure {
		return func() {}, true
	}
	if caller := trust.FromContext(r.Context()); caller.Kind != trust.Host && caller.Method != trust.Insecure {
		err := connect.NewError(connect.CodePermissionDenied, fmt.Errorf("%s may not call AllocatePorts: only hosts do", caller))
		audit.End(r.Context(), err)
		apierr.Write(w, r, err)
		return nil, false
	}
	if err := readBody(w, r); err != nil {
		audit.End(r.Context(), err)
		apierr.Write(w, r, err)
		return nil, false
	}
	who := a.tenantOfRequest(r)
	if a.Queue.Acquire(r.Context(), who, handedOn, a.Stopping) {
		return sync.OnceFunc(func() { a.Queue.Release(who) }), true
	}
	audit.End(r.Context(), nil) // who asks for ports while others do is no stranger
	a.Metrics.Requests.WithLabelValues(rpc.PortsRate).Inc()
	if r.Header.Get("Content-Type") == "application/proto" { // as hosts send it
		a.busy.write(w)
	} else {
		apierr.Write(w, r, errBusy())
	}
	return nil, false
}

// readBody reads the body of a port request, which is small and comes at once.
func readBody(w http.ResponseWriter, r *http.Request) error {
	control := http.NewResponseController(w)
	bounds := control.SetReadDeadline(time.Now().Add(limits.PortBody)) == nil
	most := limits.Of(r.URL.Path).Bytes + limits.MessageHead
	body, err := io.ReadAll(io.LimitReader(r.Body, int64(most)+1))
	switch {
	case err != nil:
		return connect.NewError(connect.CodeDeadlineExceeded, fmt.Errorf("the port request did not come within %s: %w", limits.PortBody, err))
	case len(body) > most:
		return apierr.TooLarge(int64(len(body)), int64(most))
	}
	if bounds {
		control.SetReadDeadline(time.Time{}) //nolint:errcheck // it could be set
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(body), r.Body}
	return nil
}

// tenantOfRequest is the tenant whose places a port request takes: the VIP's, or the host itself if it is not known.
func (a *Allocator) tenantOfRequest(r *http.Request) string {
	if ask := peek(r); ask != nil {
		if address, err := netip.ParseAddr(ask.GetVip()); err == nil {
			if vip, there := a.Store.State().VIPAt(address); there {
				return "tenant/" + vip.Tenant
			}
		}
	}
	return trust.FromContext(r.Context()).String()
}

// answer is an answer of HTTP that is written many times.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// busyError is the response to a request without a place.
func busyError() *answer {
	a := &answer{header: http.Header{}}
	r := &http.Request{Method: http.MethodPost, Header: http.Header{"Content-Type": {"application/proto"}, "Connect-Protocol-Version": {"1"}}}
	connect.NewErrorWriter().Write(a, r, errBusy()) //nolint:errcheck // it writes into memory
	return a
}

// Header, WriteHeader and Write make it a http.ResponseWriter, which notes what is written to it.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader notes the status.
func (a *answer) WriteHeader(code int) { a.code = code }

// Write notes a part of the body.
func (a *answer) Write(data []byte) (int, error) { return a.body.Write(data) }

// write answers with what was noted.
func (a *answer) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.code)
	w.Write(a.body.Bytes()) //nolint:errcheck // the client is gone: nobody is left to tell
}
