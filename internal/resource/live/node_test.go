package live

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/trust"
)

// fill sets a message's fields, those that it holds to empty messages.
func fill(m protoreflect.Message) {
	for i := range m.Descriptor().Fields().Len() {
		switch f := m.Descriptor().Fields().Get(i); {
		case f.IsList() && f.Kind() == protoreflect.StringKind:
			m.Mutable(f).List().Append(protoreflect.ValueOfString("x"))
		case f.IsList():
			m.Mutable(f).List().AppendMutable()
		case f.Kind() == protoreflect.MessageKind:
			m.Mutable(f)
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString("x"))
		case f.Kind() == protoreflect.BoolKind:
			m.Set(f, protoreflect.ValueOfBool(true))
		case f.Kind() == protoreflect.Uint64Kind:
			m.Set(f, protoreflect.ValueOfUint64(7))
		default:
			panic(fmt.Sprintf("a field of a kind that is not filled yet: %s", f.FullName()))
		}
	}
}

func filled() *weirv1.Node {
	n := &weirv1.Node{Status: &weirv1.NodeStatus{}}
	fill(n.ProtoReflect())
	fill(n.GetStatus().ProtoReflect())
	return n
}

// A watch tells of whatever changes at a node, but for when it was last heard.
func TestEveryFieldOfANodeIsWatched(t *testing.T) {
	n := filled()
	want := proto.CloneOf(n)
	want.Status.LastSeen = nil
	if got := unheard(n); !proto.Equal(got, want) {
		t.Errorf("a watch compares %v, want %v", got, want)
	}
	quiet := withoutCounters(n)
	for i := range n.ProtoReflect().Descriptor().Fields().Len() {
		if f := n.ProtoReflect().Descriptor().Fields().Get(i); !quiet.ProtoReflect().Has(f) {
			t.Errorf("a watch does not tell %s", f.Name())
		}
	}
}

// Viewers of tenants look at one list, which has no addresses, and take nothing from what others see.
func TestViewersOfTenantsShareALook(t *testing.T) {
	looks := 0
	s := New(&Config{View: func() *store.State { return nil }, Nodes: func(*store.State) []*weirv1.Node {
		looks++
		return []*weirv1.Node{filled()}
	}})
	nodes := func(name, tenant string) []*weirv1.Node {
		caller := trust.Identity{Kind: trust.User, Name: name, Method: trust.ByToken, Bindings: []trust.Binding{{Tenant: tenant, Role: trust.Viewer}}}
		return s.nodes(trust.WithIdentity(t.Context(), caller))
	}
	red := nodes("vic", "red")
	s.look.at = time.Now().Add(time.Hour) // the others look at once
	blue, all := nodes("bea", "blue"), nodes("ann", trust.AllTenants)
	if looks != 1 || !slices.Equal(red, blue) {
		t.Errorf("%d looks, and viewers of tenants share %v", looks, slices.Equal(red, blue))
	}
	if len(red[0].GetAddresses())+len(red[0].GetNatPrefixes()) != 0 || len(all[0].GetAddresses()) != 1 || all[0].GetVersion() == "" {
		t.Errorf("a tenant's viewer sees %v, the cluster's %v", red[0], all[0])
	}
	s.look.at = time.Time{}
	if again := nodes("vic", "red"); looks != 2 || !slices.Equal(red, again) {
		t.Errorf("a node that is as it was is another message")
	}
}
