package live

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
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

// as is a context of a caller who may view a tenant, or all.
func as(t *testing.T, name, tenant string) context.Context {
	t.Helper()
	caller := trust.Identity{Kind: trust.User, Name: name, Method: trust.ByToken, Bindings: []trust.Binding{{Tenant: tenant, Role: trust.Viewer}}}
	return trust.WithIdentity(t.Context(), caller)
}

// Viewers of tenants look at one list, which has no addresses, and take nothing from what others see.
func TestViewersOfTenantsShareALook(t *testing.T) {
	looks := 0
	s := New(&Config{View: func() *store.State { return &store.State{} }, Nodes: func(*store.State) []*weirv1.Node {
		looks++
		return []*weirv1.Node{filled()}
	}})
	red := s.nodes(as(t, "vic", "red"))
	s.look.until = time.Now().Add(time.Hour) // the others look at once
	blue, all := s.nodes(as(t, "bea", "blue")), s.nodes(as(t, "ann", trust.AllTenants))
	if looks != 1 || red != blue {
		t.Errorf("%d looks, and viewers of tenants share %v", looks, red == blue)
	}
	if n := red.all[0]; len(n.GetAddresses())+len(n.GetNatPrefixes()) != 0 || len(all.all[0].GetAddresses()) != 1 || all.all[0].GetVersion() == "" {
		t.Errorf("a tenant's viewer sees %v, the cluster's %v", n, all.all[0])
	}
	s.look.until = time.Time{}
	if again := s.nodes(as(t, "vic", "red")); looks != 2 || red != again {
		t.Errorf("%d looks; nodes that are as they were are another list", looks)
	}
}

// A watch is told what differs between two looks: of its role, and nothing twice. What one look told stays as it was.
func TestAWatchIsToldWhatDiffers(t *testing.T) {
	node := func(name, role string, generation uint64) *weirv1.Node {
		return &weirv1.Node{Name: name, Role: role, Status: &weirv1.NodeStatus{Connected: true, Generation: generation}}
	}
	var now []*weirv1.Node
	s := New(&Config{View: func() *store.State { return &store.State{} }, Nodes: func(*store.State) []*weirv1.Node {
		all := make([]*weirv1.Node, 0, len(now))
		for _, n := range now {
			all = append(all, proto.CloneOf(n)) // they are new each time
		}
		return all
	}})
	var got []string
	watch := func(role model.Role) *toldNodes {
		return &toldNodes{role: role, send: func(m *weirv1.WatchNodesResponse) error {
			got = append(got, fmt.Sprint(m.GetType(), " ", m.GetNode().GetName(), " ", m.GetNode().GetStatus().GetGeneration()))
			return nil
		}}
	}
	all, muxes := watch(""), watch(model.RoleMux)
	for i, step := range []struct {
		now        []*weirv1.Node
		all, muxes []string
	}{
		{nil, nil, nil},
		{[]*weirv1.Node{node("b", "mux", 1), node("c", "host", 1)}, []string{"added b 1", "added c 1"}, []string{"added b 1"}},
		{[]*weirv1.Node{node("b", "mux", 1), node("c", "host", 1)}, nil, nil},
		{[]*weirv1.Node{node("a", "mux", 1), node("b", "mux", 2), node("c", "host", 2)}, []string{"added a 1", "modified b 2", "modified c 2"}, []string{"added a 1", "modified b 2"}},
		{[]*weirv1.Node{node("b", "host", 2), node("d", "mux", 1)}, []string{"deleted a 0", "modified b 2", "deleted c 0", "added d 1"}, []string{"deleted a 0", "deleted b 0", "added d 1"}},
		{nil, []string{"deleted b 0", "deleted d 0"}, []string{"deleted d 0"}},
	} {
		now = step.now
		s.look.until = time.Time{}
		for _, of := range []struct {
			watch *toldNodes
			want  []string
		}{{all, step.all}, {muxes, step.muxes}} {
			got = nil
			n, err := of.watch.update(s.nodes(as(t, "ann", trust.AllTenants)))
			if err != nil || n != len(got) || !slices.Equal(got, of.want) {
				t.Errorf("step %d, role %q: told %q (%d, %v), want %q", i, of.watch.role, got, n, err, of.want)
			}
		}
	}
}
