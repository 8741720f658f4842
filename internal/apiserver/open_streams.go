package apiserver

import (
	"context"
	"errors"
	"sync"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/store/truststore"
	"github.com/weirlb/weir/internal/trust"
)

// endedError ends a stream whose caller may no longer hold it, and says why.
type endedError struct{ reason string }

func (e *endedError) Error() string { return e.reason }

// openStreams are the streams that callers hold, which end when the caller is revoked or may do something else.
type openStreams struct {
	trusted func() (now *truststore.Trust, changed <-chan struct{})

	mu  sync.Mutex
	all map[*openStream]bool
}

type openStream struct {
	caller trust.Identity
	end    context.CancelCauseFunc
}

// ended is the error of a stream: why its caller may no longer hold it, if that ended it.
func ended(ctx context.Context, err error) error {
	if reason := context.Cause(ctx); errors.As(reason, new(*endedError)) {
		return connect.NewError(connect.CodeUnauthenticated, reason)
	}
	return err
}

// hold notes a stream until the function returned is called. The context ends with its caller's right.
func (o *openStreams) hold(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	held := &openStream{caller: trust.FromContext(ctx), end: cancel}
	o.add(held)
	// A revocation after the caller was identified, and before the stream was noted, has not ended it.
	trusted, _ := o.trusted()
	held.endIfRevoked(trusted)
	return ctx, func() {
		o.remove(held)
		cancel(nil)
	}
}

func (o *openStreams) add(s *openStream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[*openStream]bool{}
	}
	o.all[s] = true
}

func (o *openStreams) remove(s *openStream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, s)
}

// endRevoked ends the streams of callers that are no longer trusted.
func (o *openStreams) endRevoked(trusted *truststore.Trust) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for s := range o.all {
		s.endIfRevoked(trusted)
	}
}

func (s *openStream) endIfRevoked(trusted *truststore.Trust) {
	if err := stillMay(s.caller, trusted); err != nil {
		s.end(&endedError{err.Error()})
	}
}

// stillMay says why the caller of a stream may no longer hold it.
func stillMay(caller trust.Identity, trusted *truststore.Trust) error {
	if caller.Anonymous() || caller.Method == trust.Insecure {
		return nil
	}
	now, err := pki.InForce(caller, trusted)
	if err == nil && !sameBindings(now, caller) {
		err = errors.New("what you may do has changed: open the stream again")
	}
	return err
}

func sameBindings(a, b trust.Identity) bool {
	if len(a.Bindings) != len(b.Bindings) {
		return false
	}
	for i := range a.Bindings {
		if a.Bindings[i] != b.Bindings[i] {
			return false
		}
	}
	return true
}

// run ends streams whenever somebody lost a right, until ctx ends. All are looked at then, and not when a node joins.
func (o *openStreams) run(ctx context.Context) {
	looked := int64(-1)
	for {
		trusted, changed := o.trusted()
		if withdrawn := trusted.Withdrawn(); withdrawn != looked {
			o.endRevoked(trusted)
			looked = withdrawn
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
