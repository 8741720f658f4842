package query

import (
	"fmt"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// nodes are 31 hosts, six muxes and six switches.
func nodes() *store.State {
	s := &store.State{}
	for i := range 30 {
		s.PutNode(model.Node{Name: fmt.Sprintf("a-host%02d", i), Role: model.RoleHost})
	}
	s.PutNode(model.Node{Name: "0", Role: model.RoleHost})
	for i := range 6 {
		s.PutNode(model.Node{Name: fmt.Sprintf("mux%d", i), Role: model.RoleMux})
		s.PutNode(model.Node{Name: fmt.Sprintf("leaf%d", i), Role: model.RoleSwitch})
	}
	return s
}

// readNodes reads all pages of nodes, and calls between behind each.
func readNodes(t *testing.T, s *store.State, role model.Role, size uint32, between func()) (all []string) {
	t.Helper()
	for token := ""; ; {
		page, err := NewNodePage(&weirv1.ListNodesRequest{Role: string(role), PageSize: size, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		nodes, next := Nodes(s, role, page, func(_ *store.State, n model.Node) *weirv1.Node { return &weirv1.Node{Name: n.Name} })
		for _, n := range nodes {
			all = append(all, n.GetName())
		}
		if token = next; token == "" {
			return all
		}
		between()
	}
}

// Who reads the first page alone has the muxes and the switches.
func TestMuxesAndSwitchesAreListedFirst(t *testing.T) {
	all := readNodes(t, nodes(), "", 50, func() { t.Error("there is a second page") })
	if len(all) != 43 || all[0] != "mux0" || all[5] != "mux5" || all[6] != "leaf0" || all[12] != "0" || all[42] != "a-host29" {
		t.Errorf("in one page: %v", all)
	}
	if of := readNodes(t, nodes(), model.RoleSwitch, 4, func() {}); len(of) != 6 || of[0] != "leaf0" {
		t.Errorf("switches: %v", of)
	}
}

// All nodes are listed once, whatever comes and goes between pages.
func TestPagesOfNodesThatComeAndGo(t *testing.T) {
	for size := uint32(1); size < 10; size++ {
		s, got := nodes(), map[string]int{}
		all := readNodes(t, s, "", size, func() { // behind, before and on the page that was
			s.RemoveNode("mux0")
			s.RemoveNode("a-host29")
			s.PutNode(model.Node{Name: "a-new-mux", Role: model.RoleMux})
			s.PutNode(model.Node{Name: "a-host99", Role: model.RoleHost})
		})
		for _, name := range all {
			got[name]++
		}
		stay := []string{"0", "mux1", "mux5", "leaf0", "leaf5"}
		for i := range 29 {
			stay = append(stay, fmt.Sprintf("a-host%02d", i))
		}
		for _, name := range stay {
			if got[name] != 1 {
				t.Errorf("in pages of %d: %s is listed %d times", size, name, got[name])
			}
		}
	}
}

// The token of a list by name is of another order.
func TestTokensOfAListByNameAreRefused(t *testing.T) {
	page, err := NewPage(&weirv1.ListNodesRequest{PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	byName := Collect[*weirv1.Node](page)
	for _, name := range []string{"a", "b"} {
		byName.Add(name, func() *weirv1.Node { return &weirv1.Node{} })
	}
	if _, err := NewNodePage(&weirv1.ListNodesRequest{PageToken: byName.Next}); byName.Next == "" || err == nil {
		t.Errorf("the token %q of a list by name is taken", byName.Next)
	}
}
