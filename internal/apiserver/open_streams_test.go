package apiserver

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/internal/sorted"
	"github.com/weirlb/weir/internal/store/truststore"
	"github.com/weirlb/weir/internal/trust"
)

// A stream whose caller was identified before a change of what it may do, and that is noted after it, ends too: no
// other change of the store need come.
func TestAStreamThatIsNotedLateEnds(t *testing.T) {
	admin := []trust.Binding{{Tenant: trust.AllTenants, Role: trust.Admin}}
	now := &truststore.Trust{Accounts: sorted.Of(map[string]trust.Account{"admin": {Name: "admin", Bindings: admin}})}
	open := openStreams{trusted: func() (*truststore.Trust, <-chan struct{}) { return now, nil }}
	caller := trust.Identity{Kind: trust.User, Name: "admin", Method: trust.ByCertificate, Bindings: admin}
	for what, bindings := range map[string][]trust.Binding{"": caller.Bindings, "what you may do has changed": {{Tenant: "default", Role: trust.Viewer}}} {
		caller.Bindings = bindings
		ctx, end := open.hold(trust.WithIdentity(t.Context(), caller))
		if err := ended(ctx, nil); what == "" && err != nil || what != "" && (connect.CodeOf(err) != connect.CodeUnauthenticated || !strings.Contains(err.Error(), what)) {
			t.Errorf("a stream of who may do %v ends with %v, want %q", bindings, err, what)
		}
		end()
	}
}
