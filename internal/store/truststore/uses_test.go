package truststore

import (
	"fmt"
	"testing"

	"github.com/weirlb/weir/internal/store/keyspace"
	"github.com/weirlb/weir/internal/trust"
)

// commit makes of now what the store shows once it holds a change, and says how many bytes were written.
func commit(t *testing.T, now *Trust, c Change) (next *Trust, written int) {
	t.Helper()
	ops, err := c.operations(now)
	if err != nil {
		t.Fatal(err)
	}
	next = now.clone()
	next.revision++
	for _, op := range ops {
		if op.IsDelete() {
			next.remove(string(op.KeyBytes()), next.revision)
			continue
		}
		written += len(op.KeyBytes()) + len(op.ValueBytes())
		if err := next.put(string(op.KeyBytes()), op.ValueBytes(), next.revision); err != nil {
			t.Fatal(err)
		}
	}
	return next, written
}

func useBy(i int) TokenUse {
	return TokenUse{"t1", trust.Use{Name: fmt.Sprintf("host%06d", i), Key: fmt.Sprintf("%064x", i)}}
}

// joined is a Trust by whose token so many nodes have joined, and what the last of them wrote.
func joined(t *testing.T, nodes int) (now *Trust, written int) {
	t.Helper()
	now, _ = commit(t, &Trust{}, Change{Tokens: []trust.JoinToken{{ID: "t1", Role: trust.Host, Uses: trust.MaxTokenUses}}})
	for i := range nodes {
		now, written = commit(t, now, joins(now, i))
	}
	return now, written
}

// joins is the change by which a node joins.
func joins(now *Trust, i int) Change {
	c := now.NoteUse(useBy(i))
	c.Principals = []trust.Principal{{Kind: trust.Host, Name: useBy(i).Name}}
	return c
}

// A join writes, and copies, what is said of one node, however many have joined by the same token before.
func TestAJoinCostsTheSameWithMoreNodes(t *testing.T) {
	few, writtenFew := joined(t, 2*inlineUses)
	many, writtenMany := joined(t, 1000)
	if writtenFew != writtenMany || writtenMany > 1024 {
		t.Errorf("join %d writes %d bytes, join 1000 %d bytes", 2*inlineUses, writtenFew, writtenMany)
	}
	copied := func(now *Trust) float64 {
		return testing.AllocsPerRun(20, func() { commit(t, now, joins(now, 2000)) })
	}
	if a, b := copied(few), copied(many); b > 2*a { // the trees are a level or two higher
		t.Errorf("a join after %d allocates %.0f times, after 1000 %.0f times", 2*inlineUses, a, b)
	}
}

// All uses of a token are known, those in its document, which the release before wrote, and those beside it, until it goes.
func TestUsesOfATokenAreKnown(t *testing.T) {
	const nodes = inlineUses + 20
	now, _ := joined(t, nodes)
	if in := len(now.Tokens.At("t1").Used); in != inlineUses || now.Uses.Count("t1") != nodes {
		t.Errorf("%d uses are in the document, want %d, %d are known, want %d", in, inlineUses, now.Uses.Count("t1"), nodes)
	}
	for _, i := range []int{0, inlineUses - 1, inlineUses, nodes - 1} {
		other := useBy(i)
		other.Key = "another"
		if !now.Uses.Has(useBy(i)) || now.Uses.Has(other) || !now.Uses.HasName("t1", useBy(i).Name) || now.Uses.HasName("t0", useBy(i).Name) {
			t.Errorf("use %d is not known by name and key", i)
		}
	}
	if now.Uses.HasName("t1", useBy(nodes).Name) || now.Uses.HasName("t1", "host") {
		t.Error("nodes are known that did not join")
	}
	now, _ = commit(t, now, Change{Tokens: []trust.JoinToken{now.Tokens.At("t1")}}) // once more
	if now.Uses.Count("t1") != nodes {
		t.Errorf("%d uses are known after the token was written again, want %d", now.Uses.Count("t1"), nodes)
	}

	token := now.clone()
	token.remove(keyspace.Tokens+"t1", 0) // as the release before deletes it
	if left := token.Uses.Count("t1"); left != nodes-inlineUses || len(token.LostTokens()) != 1 || len(now.LostTokens()) != 0 {
		t.Errorf("%d uses are left, want %d, of tokens %v", left, nodes-inlineUses, token.LostTokens())
	}
	ops, err := Change{DeleteTokens: token.LostTokens()}.operations(token)
	if err != nil {
		t.Fatal(err)
	}
	for i := inlineUses; i < nodes; i++ {
		key := keyspace.TokenUses + useBy(i).path()
		for _, op := range ops {
			if key >= string(op.KeyBytes()) && key < string(op.RangeBytes()) {
				token.remove(key, 0)
			}
		}
	}
	if token.Uses.Count("t1") != 0 || token.Uses.all.Len() != 0 || len(token.LostTokens()) != 0 {
		t.Errorf("%d uses are left of a deleted token", token.Uses.all.Len())
	}
}

// Open streams are looked at when somebody may have lost a right, and not when another node joins.
func TestWhoJoinsTakesNoRight(t *testing.T) {
	now, _ := joined(t, 3)
	host := trust.Principal{Kind: trust.Host, Name: useBy(1).Name}
	revoked := host
	revoked.Issue, revoked.Revoked = 1, true
	for _, c := range []struct {
		what     string
		change   Change
		withdraw bool
	}{
		{"another node joins", joins(now, 9), false},
		{"the same again", Change{Principals: []trust.Principal{host}}, false},
		{"a token is made", Change{Tokens: []trust.JoinToken{{ID: "t2"}}}, false},
		{"it joins anew", Change{Principals: []trust.Principal{{Kind: trust.Host, Name: host.Name, Issue: 1}}}, true},
		{"it is revoked", Change{Principals: []trust.Principal{revoked}}, true},
		{"a user's roles change", Change{Accounts: []trust.Account{{Name: "rita"}}}, true},
		{"a user goes", Change{DeleteAccounts: []string{"rita"}}, true},
	} {
		before := now.Withdrawn()
		if now, _ = commit(t, now, c.change); (now.Withdrawn() != before) != c.withdraw {
			t.Errorf("%s: rights are withdrawn: %t, want %t", c.what, now.Withdrawn() != before, c.withdraw)
		}
	}
}

// BenchmarkJoin is of what this manager takes over of one join.
func BenchmarkJoin(b *testing.B) {
	for _, nodes := range []int{1000, 100_000} {
		now := &Trust{}
		for i := range nodes {
			u := useBy(i)
			u.Token = fmt.Sprint("t", i/trust.MaxTokenUses)
			now.Uses.add(u)
			p := trust.Principal{Kind: trust.Host, Name: u.Name}
			now.Principals.Set(p.Key(), p)
		}
		ops, err := joins(now, nodes).operations(now)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint("nodes=", nodes), func(b *testing.B) {
			for b.Loop() {
				next := now.clone()
				for _, op := range ops {
					if err := next.put(string(op.KeyBytes()), op.ValueBytes(), 1); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
