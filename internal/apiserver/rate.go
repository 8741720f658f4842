package apiserver

import (
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// limited says why a caller may not make a call now: it, or its tenant, makes too many.
func (s *Server) limited(caller trust.Identity, procedure string, message any) error {
	kind := limits.KindOf(caller)
	if caller.Method == trust.Insecure || kind == limits.Manager || kind == limits.Unauthenticated { // strangers are judged before
		return nil
	}
	now, cost := s.Now(), limits.CostOf(procedure, message)
	refuse := func(who string, wait time.Duration) error {
		return rpc.RetryAfter(connect.CodeResourceExhausted, fmt.Errorf("%s makes too many requests: try again in %s", who, wait.Round(time.Millisecond)), wait)
	}
	b := limits.Callers[kind]
	if wait := s.Rates.Take(caller.String(), b.Rate, b.Burst, cost, now); wait > 0 {
		return refuse(caller.String(), wait)
	}
	if b.Opening > 0 && streams(procedure) {
		if wait := s.Rates.Take("streams of "+caller.String(), b.Streams, b.Opening, 1, now); wait > 0 {
			return refuse(caller.String()+", which opens streams,", wait)
		}
	}
	if tenant := caller.Share(); kind == limits.User && tenant != caller.String() {
		b := limits.Callers[limits.Tenant]
		if wait := s.Rates.Take(tenant, b.Rate, b.Burst, cost, now); wait > 0 {
			return refuse(tenant, wait)
		}
	}
	return nil
}
