package manager

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store/truststore"
	"github.com/weirlb/weir/internal/trust"
	"github.com/weirlb/weir/internal/webui/oidc"
)

// person is whom a provider has signed in, whatever it calls that person today.
func person(name string, groups ...trust.Binding) oidc.Person {
	return oidc.Person{Name: "oidc-" + name + "-0123456789", Subject: "subject-of-alice", Bindings: groups, Until: time.Now().Add(time.Hour)}
}

var operates = trust.Binding{Tenant: trust.AllTenants, Role: trust.Operator}

// methods are how the users of the cluster sign in, by name.
func methods(t *testing.T, admin *rpc.Client) map[string]string {
	t.Helper()
	listed, err := admin.ListUsers(t.Context(), &weirv1.ListUsersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]string{}
	for _, user := range listed.GetUsers() {
		by[user.GetName()] = user.GetMethod()
	}
	return by
}

// A person who takes other names at the provider is one user here, and stays out once it was revoked, under any name, also
// when a new CA has forgotten who was revoked.
func TestAPersonIsOneUserUnderAllNames(t *testing.T) {
	m, admin, _ := secure(t, Config{})
	for _, name := range []string{"alice", "bob", "carl"} {
		user, changed, err := m.trust.SignIn(t.Context(), person(name, operates))
		if err != nil || user.Name != "oidc-alice-0123456789" || changed != (name == "alice") || !slices.Equal(user.Bindings, []trust.Binding{operates}) {
			t.Errorf("as %s: %+v, changed: %v, %v", name, user, changed, err)
		}
	}
	if got, want := methods(t, admin), map[string]string{"admin": "certificate", "oidc-alice-0123456789": "oidc"}; !reflect.DeepEqual(got, want) {
		t.Errorf("the users are %v, want %v", got, want)
	}
	if _, err := admin.RevokePrincipal(t.Context(), &weirv1.RevokePrincipalRequest{Role: "user", Name: "oidc-alice-0123456789"}); err != nil {
		t.Fatal(err)
	}
	refused := func(when string) {
		t.Helper()
		for _, name := range []string{"alice", "bob", "dave"} {
			user, changed, err := m.trust.SignIn(t.Context(), person(name, operates))
			if connect.CodeOf(err) != connect.CodePermissionDenied || !strings.Contains(err.Error(), "oidc-alice-0123456789 was revoked") || changed {
				t.Errorf("%s, as %s: %+v, changed: %v, %v", when, name, user, changed, err)
			}
		}
		if got, want := methods(t, admin), map[string]string{"admin": "certificate", "oidc-alice-0123456789": "revoked"}; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the users are %v, want %v", when, got, want)
		}
	}
	refused("revoked")
	err := m.store.Trust.Update(t.Context(), func(*truststore.Trust) (truststore.Change, error) {
		return truststore.Change{Principals: []trust.Principal{{Kind: trust.User, Name: "oidc-alice-0123456789"}}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	refused("forgotten")
	if _, err := admin.DeleteUser(t.Context(), &weirv1.DeleteUserRequest{Name: "oidc-alice-0123456789"}); err != nil {
		t.Fatal(err)
	}
	if user, changed, err := m.trust.SignIn(t.Context(), person("bob", operates)); err != nil || !changed || user.Name != "oidc-bob-0123456789" {
		t.Errorf("after the user was deleted: %+v, changed: %v, %v", user, changed, err)
	}
}

// Who loses all groups at the provider is refused, and what it has open may do nothing from then on; of one who was never
// here nothing is kept.
func TestAPersonWithoutARoleMayDoNothing(t *testing.T) {
	m, admin, _ := secure(t, Config{})
	if _, changed, err := m.trust.SignIn(t.Context(), person("alice")); connect.CodeOf(err) != connect.CodePermissionDenied || changed {
		t.Errorf("a stranger without a role: changed: %v, %v", changed, err)
	}
	if got := methods(t, admin); len(got) != 1 {
		t.Errorf("the users are %v", got)
	}
	user, _, err := m.trust.SignIn(t.Context(), person("alice", operates))
	if err != nil {
		t.Fatal(err)
	}
	may := func() error {
		now, _ := m.store.Trust.Watch()
		caller, err := pki.InForce(user, now)
		if err != nil {
			t.Fatal(err)
		}
		return authz.Permit(caller, m.store.State(), weirv1connect.WeirServiceListVIPsProcedure, &weirv1.ListVIPsRequest{})
	}
	if err := may(); err != nil {
		t.Fatalf("with a role: %v", err)
	}
	for i := range 2 {
		again, changed, err := m.trust.SignIn(t.Context(), person("alice", trust.Binding{Tenant: "gone", Role: trust.Viewer}))
		if connect.CodeOf(err) != connect.CodePermissionDenied || !strings.Contains(err.Error(), "in no group") || changed != (i == 0) || again.Name != user.Name {
			t.Errorf("without a role: %+v, changed: %v, %v", again, changed, err)
		}
	}
	if err := may(); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a session from before, without a role: %v", err)
	}
	if _, changed, err := m.trust.SignIn(t.Context(), person("alice", operates)); err != nil || !changed || may() != nil {
		t.Errorf("in a group again: changed: %v, %v, %v", changed, err, may())
	}
}
