package trustservice

import (
	"testing"
	"time"

	"github.com/weirlb/weir/internal/sorted"
	"github.com/weirlb/weir/internal/store/truststore"
	"github.com/weirlb/weir/internal/trust"
)

// A user's certificate ends: after its life it proves nothing, and makes no admin.
func TestUsersCertificatesProveForTheirLife(t *testing.T) {
	joined := time.Unix(1_700_000_000, 0)
	now := &truststore.Trust{Principals: sorted.Of(map[string]trust.Principal{"user/carl": {Kind: trust.User, Name: "carl", Joined: joined}})}
	carl := trust.Account{Name: "carl"}
	if !canProve(now, carl, joined.Add(trust.UserLife/2)) || canProve(now, carl, joined.Add(trust.UserLife)) {
		t.Error("a certificate is good for its life, and then proves nothing")
	}
}

// Whom a provider signs in is no admin to rely on: the provider may do so no more.
func TestUsersOfAProviderAreNoLastAdmin(t *testing.T) {
	now := &truststore.Trust{Principals: sorted.Of(map[string]trust.Principal{"user/oidc-alice-0123456789": {Kind: trust.User, Name: "oidc-alice-0123456789"}})}
	alice := trust.Account{Name: "oidc-alice-0123456789", Subject: "s"}
	if canProve(now, alice, time.Unix(1_700_000_000, 0)) {
		t.Error("a user of a provider counts as an admin who can prove it")
	}
}
