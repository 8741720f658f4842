package snatalloc

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/trust"
	"github.com/weirlb/weir/internal/wire"
)

// maxPortRequest is more than a port request has, in bytes.
const maxPortRequest = 1 << 10

// Precheck refuses a port request that the leader would refuse, at the manager that the host speaks to, so that
// it costs the leader nothing. Otherwise done has to be called when the leader has answered. Of the requests of
// workloads at their limit, one in fullRetry is forwarded, so that the leader records an event.
func (a *Allocator) Precheck(r *http.Request) (done func(), err error) {
	done = func() {}
	ask := peek(r)
	if ask == nil || authz.Permit(trust.FromContext(r.Context()), a.Store.State(), r.URL.Path, ask) != nil {
		return done, nil // it is the leader's to say why
	}
	key, err := wire.SNATKeyFromProto(&weirv1.SNATKey{Vip: ask.GetVip(), Address: ask.GetAddress()})
	if err != nil {
		return done, nil //nolint:nilerr // likewise
	}
	state := a.Store.State()
	vip, err := clientOf(state, ask.GetName(), key)
	if err != nil {
		return done, nil //nolint:nilerr // this manager may be behind
	}
	_, end, err := a.requests.begin(key, vip.SNAT.RequestRate, a.Now())
	if err == nil {
		done = sync.OnceFunc(func() { end(0) })
		if err = checkQuota(state, vip, key); err != nil && a.requests.passes(key, a.Now()) {
			err = nil
		}
	}
	if err != nil {
		done()
		a.Metrics.Requests.WithLabelValues(outcomeOf(err)).Inc()
	}
	return done, err
}

// passes says whether a request that would be refused goes to the leader, and notes that it did.
func (p *requests) passes(key model.SNATKey, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.of[key]
	if r == nil || now.Sub(r.passed) < fullRetry {
		return false
	}
	r.passed = now
	return true
}

// peek reads a port request ahead, as hosts send it: by Connect, plain and small. nil: it is none, or another.
func peek(r *http.Request) *weirv1.AllocatePortsRequest {
	if r.URL.Path != weirv1connect.SyncServiceAllocatePortsProcedure || r.Header.Get("Content-Type") != "application/proto" ||
		r.Header.Get("Content-Encoding") != "" || r.ContentLength < 0 || r.ContentLength > maxPortRequest {
		return nil
	}
	message := make([]byte, r.ContentLength)
	n, err := io.ReadFull(r.Body, message)
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(message[:n]), r.Body), r.Body}
	ask := &weirv1.AllocatePortsRequest{}
	if err != nil || proto.Unmarshal(message, ask) != nil {
		return nil
	}
	return ask
}
