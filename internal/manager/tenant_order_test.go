package manager

import (
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// A tenant is not deleted while a VIP of it is being written: the one that comes first is seen by the other.
func TestATenantIsNotDeletedWhileAVIPIsWritten(t *testing.T) {
	m, admin, _ := secure(t, Config{})
	if _, err := admin.ApplyTenants(t.Context(), &weirv1.ApplyTenantsRequest{Tenants: []*weirv1.Tenant{{Name: "red"}}}); err != nil {
		t.Fatal(err)
	}
	rose, err := compile.VIP(of("red", bare("rose", "203.0.113.1")))
	if err != nil {
		t.Fatal(err)
	}
	decided, proceed := make(chan struct{}), make(chan struct{})
	written := make(chan error, 1)
	go func() {
		first := true
		_, err := m.store.Update(t.Context(), func(*store.State) (store.Change, error) {
			if first {
				close(decided)
				<-proceed
			}
			first = false
			return store.Change{VIPs: []model.VIP{rose}}, nil
		})
		written <- err
	}()
	<-decided
	deleted := make(chan error, 1)
	go func() { deleted <- failure(admin.DeleteTenant(t.Context(), &weirv1.DeleteTenantRequest{Name: "red"})) }()
	eventually(t, "the deletion is done, or waits", func() bool { return len(deleted) > 0 || m.store.Queues()["configuration"].Length > 0 })
	close(proceed)
	if err := <-written; err != nil {
		t.Errorf("the VIP: %v", err)
	}
	refusedWith(t, "the deletion", <-deleted, "tenant red has 1 VIPs")
}
