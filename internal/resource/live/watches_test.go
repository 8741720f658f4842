package live

import (
	"fmt"
	"testing"

	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/trust"
)

// One caller, or one tenant, does not take all watches.
func TestWatchesAreShared(t *testing.T) {
	var w Watches
	open := func(name, tenant string) error {
		_, err := w.Begin(trust.Identity{Kind: trust.User, Name: name, Method: trust.ByToken, Bindings: []trust.Binding{{Tenant: tenant, Role: trust.Viewer}}})
		return err
	}
	each, tenant := limits.Callers[limits.User].Watches, limits.Callers[limits.Tenant].Watches
	n := 0
	for i := range 10 {
		for open(fmt.Sprint("vic", i), "red") == nil {
			if n++; n == each {
				break
			}
		}
	}
	if n > tenant {
		t.Errorf("a tenant has %d watches", n)
	}
	if err := open("vic0", "red"); err == nil {
		t.Error("a viewer opens watches on and on")
	}
	if err := open("admin", trust.AllTenants); err != nil {
		t.Errorf("the admin: %v", err)
	}
}
