package oidc

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/weirlb/weir/internal/trust"
)

// Person is who has signed in.
type Person struct {
	Name     string          // of a user that is made now: oidc-alice-0123456789
	Subject  string          // names the person among all of all providers
	Bindings []trust.Binding // none: its groups may do nothing
	Until    time.Time       // the ID token's end
}

// Bounds of a user's name, which is a DNS label.
const (
	maxReadable = 40
	hashDigits  = 10
)

// person is whom a token is of, and what its groups may do.
func (p *Provider) person(token *oidc.IDToken) (Person, error) {
	var claims map[string]json.RawMessage
	if err := token.Claims(&claims); err != nil {
		return Person{}, connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("read the provider's ID token: %w", err))
	}
	var name string
	json.Unmarshal(claims[p.cfg.NameClaim], &name) //nolint:errcheck // one without it is named by the subject
	sum := sha256.Sum256([]byte(token.Issuer + "\x00" + token.Subject))
	who := Person{
		Name: "oidc-" + readable(name) + "-" + hex.EncodeToString(sum[:])[:hashDigits], Subject: hex.EncodeToString(sum[:]), Until: token.Expiry,
	}
	for _, group := range texts(claims[p.cfg.GroupsClaim]) {
		for _, b := range p.roles[group] {
			if !slices.Contains(who.Bindings, b) {
				who.Bindings = append(who.Bindings, b)
			}
		}
	}
	slices.SortFunc(who.Bindings, func(a, b trust.Binding) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Role, b.Role))
	})
	return who, nil
}

// texts reads a claim that is a text or a list of them.
func texts(claim json.RawMessage) []string {
	var list []string
	if json.Unmarshal(claim, &list) == nil {
		return list
	}
	var one string
	if json.Unmarshal(claim, &one) == nil {
		return []string{one}
	}
	return nil
}

// readable makes a part of a DNS label of a name: of alice@example.com what is before the @.
func readable(name string) string {
	name, _, _ = strings.Cut(strings.ToLower(name), "@")
	label := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, name)
	label = strings.Trim(label[:min(len(label), maxReadable)], "-")
	return cmp.Or(label, "user")
}
