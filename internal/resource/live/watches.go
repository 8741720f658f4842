package live

import (
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/internal/inflight"
	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// Kinds of messages of a watch.
const (
	Added    = "added"
	Modified = "modified"
	Deleted  = "deleted"
	Bookmark = "bookmark"
)

// errStops ends a watch of a manager that stops; its caller hears of no error.
var errStops = errors.New("the manager stops")

// ended is the error of a watch.
func ended(err error) error {
	if errors.Is(err, errStops) {
		return nil
	}
	return err
}

// Watches counts those that are open: of each caller, and of all callers of a tenant.
type Watches struct{ callers, tenants inflight.Limit }

// Open is how many watches are open.
func (w *Watches) Open() int { return w.callers.Taken() }

// Begin takes a place, until end is called.
func (w *Watches) Begin(caller trust.Identity) (end func(), err error) {
	if caller.Method == trust.Insecure {
		caller = trust.Identity{}
	}
	refuse := func(who string, n int) error {
		return rpc.NewError(connect.CodeResourceExhausted, fmt.Errorf("%s has %d watches open already: end some, try another manager, or later", who, n))
	}
	each := limits.Callers[limits.KindOf(caller)].Watches
	if w.Open() >= limits.Watches {
		return nil, refuse("this manager", limits.Watches)
	}
	leave := w.callers.Acquire(caller.String(), limits.Watches, each)
	if leave == nil {
		return nil, refuse(caller.String(), each)
	}
	leaveTenant := func() {}
	if tenant := caller.Share(); tenant != caller.String() {
		most := limits.Callers[limits.Tenant].Watches
		if leaveTenant = w.tenants.Acquire(tenant, 0, most); leaveTenant == nil {
			leave()
			return nil, refuse(tenant, most)
		}
	}
	return func() { leave(); leaveTenant() }, nil
}
