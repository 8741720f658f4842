package apiserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/replica"
	"github.com/weirlb/weir/internal/tokenbucket"
	"github.com/weirlb/weir/internal/trust"
)

// /healthz answers by the last check of the store: strangers cause no read of it.
func TestHealthzIsTheLastCheck(t *testing.T) {
	for err, want := range map[error]int{nil: http.StatusOK, replica.ErrPartitioned: http.StatusServiceUnavailable} {
		w := httptest.NewRecorder()
		if healthz(func() error { return err })(w, nil); w.Code != want {
			t.Errorf("answered %d with the store's error %v, want %d", w.Code, err, want)
		}
	}
}

// Requests are limited by caller and by tenant; what one tenant makes is not another's.
func TestRatesAreByCallerAndTenant(t *testing.T) {
	now := time.Unix(1000, 0)
	s := &Server{Config: &Config{Now: func() time.Time { return now }, Rates: &tokenbucket.Buckets{}}}
	user := func(name, tenant string) trust.Identity {
		return trust.Identity{Kind: trust.User, Name: name, Method: trust.ByToken, Bindings: []trust.Binding{{Tenant: tenant, Role: trust.Operator}}}
	}
	var message any
	makes := func(i trust.Identity, procedure string) (n int) {
		for n < 30000 && s.limited(i, procedure, message) == nil {
			n++
		}
		return n
	}
	patch, status := weirv1connect.WeirServicePatchVIPProcedure, weirv1connect.WeirServiceGetStatusProcedure
	each, all := limits.Callers[limits.User].Burst, limits.Callers[limits.Tenant].Burst
	for i, c := range []struct {
		caller    trust.Identity
		procedure string
		want      int
	}{
		{user("rita", "red"), patch, each},
		{user("ron", "red"), status, each / limits.Of(status).Cost},
		{user("rob", "red"), patch, all - 2*each},
		{user("bea", "blue"), patch, each},
		{trust.Identity{Kind: trust.Host, Name: "host1"}, weirv1connect.SyncServiceSyncHostProcedure, limits.Callers[limits.Host].Opening},
		{trust.Identity{Kind: trust.Manager, Name: "m2"}, patch, 30000},
	} {
		if n := makes(c.caller, c.procedure); n != c.want {
			t.Errorf("%d: %s makes %d calls of %s at once, want %d", i, c.caller, n, c.procedure, c.want)
		}
	}
	if now = now.Add(time.Second); makes(user("bea", "blue"), patch) != int(limits.Callers[limits.User].Rate) {
		t.Error("a second later blue has other than its rate")
	}
	// Pages that go on cost less, where they do less; and are not free.
	for i, c := range []struct {
		procedure string
		message   any
		want      int
	}{
		{weirv1connect.WeirServiceListNodesProcedure, &weirv1.ListNodesRequest{}, each / 20},
		{weirv1connect.WeirServiceListNodesProcedure, &weirv1.ListNodesRequest{PageToken: "next"}, each / 5},
		{status, &weirv1.GetStatusRequest{PageToken: "next"}, each / 5},
		{weirv1connect.TrustServiceListTenantsProcedure, &weirv1.ListTenantsRequest{PageToken: "next"}, each / 20},
	} {
		message = c.message
		if n := makes(user(fmt.Sprintf("ida%d", i), fmt.Sprintf("green%d", i)), c.procedure); n != c.want {
			t.Errorf("%d calls of %s with %v at once, want %d", n, c.procedure, c.message, c.want)
		}
	}
}

// A stranger has a few places, and another address finds one; a place that was left is there again.
func TestPlacesOfStrangersAreByAddress(t *testing.T) {
	var s unauthenticated
	now := time.Unix(1000, 0)
	var last func()
	for i := range limits.Callers[limits.Unauthenticated].Each {
		leave, err := s.enter("192.0.2.1:99", now)
		if err != nil {
			t.Fatalf("place %d: %v", i, err)
		}
		last = leave
	}
	if _, err := s.enter("192.0.2.1:100", now); err == nil {
		t.Error("one too many finds a place")
	}
	if _, err := s.enter("192.0.2.2:99", now); err != nil {
		t.Errorf("another address finds no place: %v", err)
	}
	last()
	if _, err := s.enter("192.0.2.1:100", now); err != nil {
		t.Errorf("a place that was left is not there: %v", err)
	}
}
