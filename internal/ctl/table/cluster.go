package table

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/trust"
)

// Users has a row for each user.
func Users(users []*weirv1.User) *Table {
	t := New("", "There are no users.", "NAME", "ROLES", "BY")
	for _, u := range users {
		var roles []string
		for _, b := range u.GetBindings() {
			roles = append(roles, b.GetRole()+" of "+b.GetTenant())
		}
		t.Add(u.GetName(), strings.Join(roles, ", "), u.GetMethod())
	}
	return t
}

// Tokens has a row for each join token.
func Tokens(tokens []*weirv1.Token) *Table {
	t := New("", "There are no tokens.", "ID", "ROLE", "NAME", "USED", "EXPIRES", "BY", "ADDRESSES")
	for _, token := range tokens {
		role := token.GetRole()
		if role == string(trust.Host) { // the word that token create takes
			role = "agent"
		}
		t.Add(token.GetId(), role, token.GetName(), fmt.Sprintf("%d/%d", token.GetUsed(), token.GetUses()),
			token.GetExpires().AsTime().Format(time.RFC3339), token.GetBy(),
			cmp.Or(strings.Join(token.GetAddresses(), ","), "any"))
	}
	return t
}

// AuditEntries has a row for each request that the audit log holds.
func AuditEntries(entries []*weirv1.AuditEntry) *Table {
	t := New("", "There is nothing in the audit log.", "TIME", "WHO", "FROM", "WHAT", "SUBJECT", "RESULT", "REASON")
	for _, e := range entries {
		t.Add(e.GetTime().AsTime().Format(time.RFC3339), e.GetIdentity(), e.GetFrom(), e.GetProcedure(), e.GetSubject(),
			e.GetResult(), e.GetReason())
	}
	return t
}
