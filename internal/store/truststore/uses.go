package truststore

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weirlb/weir/internal/sorted"
	"github.com/weirlb/weir/internal/store/keyspace"
	"github.com/weirlb/weir/internal/trust"
)

// inlineUses is how many uses of a token are in its document, where the release before has all of them. Each further one has a
// key of its own: a join does not write again who joined before.
const inlineUses = 64

// TokenUse is a join by a token.
type TokenUse struct {
	Token string // its id
	trust.Use
}

// Compare orders them by token and name.
func (u TokenUse) Compare(other TokenUse) int {
	return cmp.Or(strings.Compare(u.Token, other.Token), strings.Compare(u.Name, other.Name), strings.Compare(u.Key, other.Key))
}

var _ = sorted.Register(TokenUse.Compare)

// path is what its key is below keyspace.TokenUses.
func (u TokenUse) path() string { return u.Token + "/" + u.Name + "/" + u.Key }

func useOf(path string) TokenUse {
	token, rest, _ := strings.Cut(path, "/")
	name, key, _ := strings.Cut(rest, "/")
	return TokenUse{token, trust.Use{Name: name, Key: key}}
}

// Uses are the joins by all tokens. A copy that was not made by clone is read only.
type Uses struct {
	all    sorted.Map[TokenUse, struct{}]
	counts sorted.Map[string, int] // by token
}

func (u Uses) clone() Uses { return Uses{u.all.Clone(), u.counts.Clone()} }

// Count is how many joins by a token there were.
func (u Uses) Count(token string) int { return u.counts.At(token) }

// Has says whether a join was by the token.
func (u Uses) Has(use TokenUse) bool { return u.all.Has(use) }

// HasName says whether a node of that name joined by the token.
func (u Uses) HasName(token, name string) bool {
	for use := range u.all.From(TokenUse{Token: token, Use: trust.Use{Name: name}}) {
		return use.Token == token && use.Name == name
	}
	return false
}

func (u *Uses) add(use TokenUse) {
	if !u.all.Has(use) {
		u.all.Set(use, struct{}{})
		u.counts.Set(use.Token, u.counts.At(use.Token)+1)
	}
}

func (u *Uses) remove(use TokenUse) {
	if !u.all.Has(use) {
		return
	}
	u.all.Delete(use)
	if left := u.counts.At(use.Token) - 1; left > 0 {
		u.counts.Set(use.Token, left)
	} else {
		u.counts.Delete(use.Token)
	}
}

// NoteUse is the change that notes a join by a token.
func (t *Trust) NoteUse(use TokenUse) Change {
	token := t.Tokens.At(use.Token)
	if len(token.Used) >= inlineUses {
		return Change{uses: []TokenUse{use}}
	}
	token.Used = append(slices.Clone(token.Used), use.Use)
	return Change{Tokens: []trust.JoinToken{token}}
}

// LostTokens are the ids of tokens that were deleted by the release before, which left uses of theirs.
func (t *Trust) LostTokens() (ids []string) {
	for id := range t.Uses.counts.Keys() {
		if !t.Tokens.Has(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// putToken takes over a token, with the uses that are in its document.
func (t *Trust) putToken(id string, token trust.JoinToken) {
	t.removeToken(id)
	t.Tokens.Set(id, token)
	for _, use := range token.Used {
		t.Uses.add(TokenUse{id, use})
	}
}

func (t *Trust) removeToken(id string) {
	for _, use := range t.Tokens.At(id).Used {
		t.Uses.remove(TokenUse{id, use})
	}
	t.Tokens.Delete(id)
}

// usesOf is the prefix of the keys of a token's uses.
func usesOf(token string) string { return keyspace.TokenUses + token + "/" }
