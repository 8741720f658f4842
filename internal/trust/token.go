package trust

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"github.com/weirlb/weir/internal/model"
)

// The heads of tokens, by which people and scanners know them.
const (
	joinHead = "weir_join_"
	userHead = "weir_user_"
)

const secretBytes = 32

// Secret is a token as its holder has it: id.secret, after a head that says what it is for. The id
// is that of a join token or the name of a user.
type Secret struct {
	head   string
	ID     string
	secret string
}

// NewJoinSecret makes the secret of a join token.
func NewJoinSecret() (Secret, error) {
	id := make([]byte, 6)
	if _, err := rand.Read(id); err != nil {
		return Secret{}, fmt.Errorf("make a token: %w", err)
	}
	return newSecret(joinHead, fmt.Sprintf("%x", id))
}

// NewUserSecret makes the bearer token of a user.
func NewUserSecret(user string) (Secret, error) { return newSecret(userHead, user) }

func newSecret(head, id string) (Secret, error) {
	secret := make([]byte, secretBytes)
	if _, err := rand.Read(secret); err != nil {
		return Secret{}, fmt.Errorf("make a token: %w", err)
	}
	return Secret{head: head, ID: id, secret: base64.RawURLEncoding.EncodeToString(secret)}, nil
}

// Text is what the holder keeps.
func (s Secret) Text() string { return s.head + s.ID + "." + s.secret }

// Hash is what the store keeps. The secret is random and long, so one round is enough.
func (s Secret) Hash() []byte {
	sum := sha256.Sum256([]byte(s.Text()))
	return sum[:]
}

// Matches compares in constant time.
func (s Secret) Matches(hash []byte) bool { return subtle.ConstantTimeCompare(s.Hash(), hash) == 1 }

// ParseJoin reads the text of a join token.
func ParseJoin(text string) (Secret, error) { return parseSecret(joinHead, "join token", text) }

// ParseUser reads the text of a user's bearer token.
func ParseUser(text string) (Secret, error) { return parseSecret(userHead, "user's token", text) }

var secretForm = regexp.MustCompile(`^([a-z0-9-]{1,63})\.([A-Za-z0-9_-]{43})$`)

func parseSecret(head, what, text string) (Secret, error) {
	rest, ok := strings.CutPrefix(text, head)
	if !ok {
		return Secret{}, fmt.Errorf("is no %s: must begin with %s", what, head)
	}
	parts := secretForm.FindStringSubmatch(rest)
	if parts == nil {
		return Secret{}, fmt.Errorf("is no %s: is it cut off?", what)
	}
	return Secret{head: head, ID: parts[1], secret: parts[2]}, nil
}

// JoinToken is what the store keeps of a join token.
type JoinToken struct {
	ID      string    `json:"id"`
	Hash    []byte    `json:"hash"`
	Role    Kind      `json:"role"`
	Name    string    `json:"name,omitempty"` // the only one that it is good for
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	Uses    uint32    `json:"uses"`
	Used    []Use     `json:"used,omitempty"` // the first ones: truststore.Uses has all
	By      string    `json:"by"`
	// Addresses are prefixes that addresses of the nodes that join lie in; none: any that is nobody else's.
	Addresses []netip.Prefix `json:"addresses,omitempty"`
}

// Use is one join by a token.
type Use struct {
	Name string `json:"name"`
	Key  string `json:"key"` // hash of the public key
}

// Bounds of a join token.
const (
	DefaultTokenLife = time.Hour
	MaxTokenLife     = 30 * 24 * time.Hour
	MaxTokenUses     = 10000
	maxAddresses     = 256
)

// Validate says what is wrong with a token that is asked for.
func (t JoinToken) Validate() error {
	var errs []error
	refuse := func(field, format string, args ...any) {
		errs = append(errs, &model.FieldError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	if _, err := ParseNode(string(t.Role)); err != nil {
		refuse("role", "%v", err)
	}
	if t.Name != "" && !model.ValidName(t.Name) {
		refuse("name", "must be a DNS label, is %.70q", t.Name)
	}
	if life := t.Expires.Sub(t.Created); life <= 0 || life > MaxTokenLife {
		refuse("ttl", "must be more than nothing and at most %s, is %s", MaxTokenLife, life)
	}
	if t.Uses == 0 || t.Uses > MaxTokenUses {
		refuse("uses", "must be from 1 to %d, is %d", MaxTokenUses, t.Uses)
	}
	if t.Name != "" && t.Uses > 1 {
		refuse("uses", "must be 1 for a token of one name, is %d", t.Uses)
	}
	if t.Role == Manager && len(t.Addresses) > 0 {
		refuse("addresses", "are for muxes, agents and switches, not for managers")
	}
	if n := len(t.Addresses); n > maxAddresses {
		refuse("addresses", "must be at most %d, are %d", maxAddresses, n)
	}
	for i, p := range t.Addresses {
		if reason := model.OwnedPrefix(p); reason != "" {
			refuse(fmt.Sprintf("addresses[%d]", i), "%s", reason)
		}
	}
	return errors.Join(errs...)
}

// Admit says why secret does not let a node of that role and name join by t, which was used a number of times. again: it did
// so before with the same key, and the answer was lost.
func (t JoinToken) Admit(secret Secret, role Kind, name string, again bool, used int, now time.Time) error {
	switch {
	case !secret.Matches(t.Hash):
		return errors.New("the join token is not valid: make another with weir token create")
	case !now.Before(t.Expires):
		return fmt.Errorf("the join token expired at %s: make another with weir token create", t.Expires.UTC().Format(time.DateTime))
	case t.Role != role:
		return fmt.Errorf("the join token is for a %s, not for a %s", t.Role, role)
	case t.Name != "" && t.Name != name:
		return fmt.Errorf("the join token is for %s, not for %s", t.Name, name)
	case !again && used >= int(t.Uses):
		return errors.New("the join token was used already: make another with weir token create")
	}
	return nil
}
