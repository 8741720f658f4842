package placed

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/internal/trust"
)

// caller is the context of a call of a user with a role in a tenant.
func caller(ctx context.Context, tenant string) context.Context {
	return trust.WithIdentity(ctx, trust.Identity{
		Kind: trust.User, Name: "anna", Method: trust.ByToken, Bindings: []trust.Binding{{Role: trust.Operator, Tenant: tenant}},
	})
}

// However many dry runs tenants ask for, one of them at most is before an operator's call, a tenant has two, and nobody waits
// longer than the call lasts.
func TestTenantsStarveNoOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var of turns
		var order []string
		compute := func(ctx context.Context, name string, tenants ...string) chan error {
			ended := make(chan error, 1)
			go func() {
				ended <- of.compute(ctx, tenants, func(context.Context) error {
					order = append(order, name)
					time.Sleep(time.Second)
					return nil
				})
			}()
			synctest.Wait()
			return ended
		}
		red, blue := caller(t.Context(), "red"), caller(t.Context(), "blue")
		first := compute(red, "red", "red")
		brief, cancel := context.WithTimeout(red, time.Millisecond)
		defer cancel()
		gives := compute(brief, "red gives up", "red")
		if err := <-compute(red, "a third", "red"); connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("a tenant has three calls: %v", err)
		}
		if err := <-gives; err == nil {
			t.Error("a call is computed after its end")
		}
		second := compute(red, "red again", "red")
		third := compute(blue, "blue", "blue")
		operator := compute(caller(t.Context(), trust.AllTenants), "operator")
		for _, ended := range []chan error{first, second, third, operator} {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if len(order) != 4 || order[0] != "red" || order[1] != "operator" {
			t.Errorf("computed in this order: %q", order)
		}
		if len(of.waiting) > 0 {
			t.Errorf("calls that have ended wait: %v", of.waiting)
		}
		_ = of.all.Take(t.Context()) // for ever
		if err := <-compute(caller(t.Context(), trust.AllTenants), "late"); connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("an operator waits, and is told %v", err)
		}
	})
}
