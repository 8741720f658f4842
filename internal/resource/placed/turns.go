package placed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/internal/trust"
	"github.com/weirlb/weir/internal/wake"
)

const (
	// waitTime bounds how long a call waits for those before it.
	waitTime = 10 * time.Second
	// mostWaiting bounds the calls of those who see all tenants, and mostOfTenant those about one tenant of others, that wait
	// or compute.
	mostWaiting  = 8
	mostOfTenant = 2
)

// turns have one placement computed at a time, as that takes seconds of a CPU; other calls wait. Those of users of some tenants
// alone wait for each other first, so that one of them at most is before a call of an operator.
type turns struct {
	all, tenants wake.Turn

	mu      sync.Mutex
	waiting map[string]int // by tenant; "": of those who see all
}

// compute has a call compute a placement about VIPs of these tenants, when it has its turn.
func (t *turns) compute(ctx context.Context, tenants []string, do func(context.Context) error) error {
	operator := trust.FromContext(ctx).May(trust.Viewer, trust.AllTenants)
	if operator {
		tenants = []string{""}
	}
	left, err := t.enter(tenants, operator)
	if err != nil {
		return err
	}
	defer left()
	waits, cancel := context.WithTimeoutCause(ctx, waitTime, errBusy)
	defer cancel()
	if !operator {
		if err := t.tenants.Take(waits); err != nil {
			return err
		}
		defer t.tenants.Leave()
	}
	if err := t.all.Take(waits); err != nil {
		return err
	}
	defer t.all.Leave()
	return do(ctx)
}

// enter counts a call, unless too many wait, until it has left.
func (t *turns) enter(tenants []string, operator bool) (left func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting == nil {
		t.waiting = map[string]int{}
	}
	most := mostOfTenant
	if operator {
		most = mostWaiting
	}
	for _, tenant := range tenants {
		if t.waiting[tenant] >= most {
			return nil, connect.NewError(connect.CodeResourceExhausted,
				fmt.Errorf("%d calls about VIPs of tenant %q wait for a placement: try again in some seconds", most, cmp.Or(tenant, trust.AllTenants)))
		}
	}
	for _, tenant := range tenants {
		t.waiting[tenant]++
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, tenant := range tenants {
			if t.waiting[tenant]--; t.waiting[tenant] == 0 {
				delete(t.waiting, tenant)
			}
		}
	}, nil
}

var errBusy = connect.NewError(connect.CodeResourceExhausted, errors.New("the leader computes placements for other calls: try again in some seconds"))
