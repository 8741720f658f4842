package manager

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"

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

// full says whether so many requests are under way.
func (p *portRequests) full(most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open >= most
}

// busy answers a port request, as hosts send it, that is one too many, before it costs more than its answer: when
// thousands come in a second, that is what decides. It says whether it did.
func (m *Manager) busy(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path != weirv1connect.SyncServiceAllocatePortsProcedure || r.Header.Get("Content-Type") != "application/proto" ||
		!m.ports.full(m.portsMost(m.store.State())) {
		return false
	}
	noteEnd(r.Context(), nil) // who asks for ports while others do is no stranger
	m.meters.portRequests.WithLabelValues(rpc.PortsRate).Inc()
	io.CopyN(io.Discard, r.Body, maxPortRequest) //nolint:errcheck // what it asks for does not matter
	m.ports.busy.write(w)
	return true
}

// answer is an answer of HTTP that is written many times.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// busyAnswer is what busy writes.
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
