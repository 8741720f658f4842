package manager

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"sync"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
)

// errPortsBusy is what a workload is told whose request is one too many.
func errPortsBusy() error {
	return rpc.RefusePorts(rpc.PortsRate, busyRetry, errors.New("other requests for ports are under way, as many as may be: ask again"))
}

// portsMost is how many port requests this manager may have under way. In a crowd of users' changes the bound is one for
// all: each manager that hands requests on to the leader has its part of it.
func (m *Manager) portsMost(s *store.State) int {
	switch {
	case !m.store.Crowded():
		return portsOpen
	case s.Leader == m.cfg.Name:
		return portsCrowded
	}
	return max(1, portsCrowded/max(1, len(s.Managers)))
}

// portPlaces is the same for the line, and whether there is a crowd.
func (m *Manager) portPlaces() (n int, crowd bool) {
	return m.portsMost(m.store.State()), m.store.Crowded()
}

// enterPorts takes the place of a request, if it is one for ports, or answers that there is none: before it costs more
// than its answer, which is what decides when thousands come in a second. leave gives the place back.
func (m *Manager) enterPorts(w http.ResponseWriter, r *http.Request) (leave func(), ok bool) {
	if r.URL.Path != weirv1connect.SyncServiceAllocatePortsProcedure {
		return func() {}, true
	}
	if m.ports.line.enter(r.Context(), r.Header.Get(forwardedBy) != "", m.stopping) {
		return sync.OnceFunc(m.ports.line.leave), true
	}
	noteEnd(r.Context(), nil) // who asks for ports while others do is no stranger
	m.meters.portRequests.WithLabelValues(rpc.PortsRate).Inc()
	if r.Header.Get("Content-Type") == "application/proto" { // as hosts send it
		io.CopyN(io.Discard, r.Body, maxPortRequest) //nolint:errcheck // what it asks for does not matter
		m.ports.busy.write(w)
	} else {
		refuse(w, r, errPortsBusy())
	}
	return nil, false
}

// answer is an answer of HTTP that is written many times.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// busyAnswer is what who gets no place is told.
func busyAnswer() *answer {
	a := &answer{header: http.Header{}}
	r := &http.Request{Method: http.MethodPost, Header: http.Header{"Content-Type": {"application/proto"}, "Connect-Protocol-Version": {"1"}}}
	connect.NewErrorWriter().Write(a, r, errPortsBusy()) //nolint:errcheck // it writes into memory
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
