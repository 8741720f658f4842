package resource

import (
	"fmt"
	"math"
	"testing"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/resource/query"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

// Of 1000 hosts and 16 muxes with 5000 endpoints, each page of nodes is one that clients of gRPC take, and so is each of the
// status; all nodes are in them.
func TestPagesOfManyNodesAreSmall(t *testing.T) {
	t.Parallel()
	counters := func(n int) (all []*weirv1.NamedCounter) {
		for i := range n {
			all = append(all, &weirv1.NamedCounter{Name: fmt.Sprintf("drop_of_some_kind_%d", i), Packets: math.MaxUint32, Bytes: math.MaxUint32})
		}
		return all
	}
	mux := &weirv1.MuxStatus{Verdicts: counters(70), XdpMode: "native", Interface: "eth0"}
	for i := range 5000 {
		key := &weirv1.EndpointKey{Vip: fmt.Sprintf("203.0.%d.%d", i/250, i%250), Protocol: "TCP", Port: 443}
		mux.Endpoints = append(mux.Endpoints, &weirv1.EndpointCounter{Endpoint: key, Packets: math.MaxUint32, Bytes: math.MaxUint32})
	}
	said := map[model.Role]*weirv1.NodeStatus{
		model.RoleMux:  {Mux: mux},
		model.RoleHost: {Host: &weirv1.HostStatus{Verdicts: counters(90), Uplink: "eth0", Sessions: 1 << 20}},
	}
	m := &Nodes{Config: &Config{Reported: func(_ *store.State, n model.Node) (nodestatus.Status, *weirv1.NodeStatus) {
		return nodestatus.Status{Generation: 7}, said[n.Role]
	}}}
	s := &store.State{}
	for i := range 1000 {
		s.PutNode(model.Node{Name: fmt.Sprintf("host%d", i), Role: model.RoleHost})
	}
	for i := range 16 {
		s.PutNode(model.Node{Name: fmt.Sprintf("mux%d", i), Role: model.RoleMux})
	}
	const taken = 4 << 20
	for what, write := range map[string]func(*store.State, model.Node) *weirv1.Node{"nodes": m.nodeWithStatus, "status": m.nodeWithSums} {
		bytes, nodes, pages := 0, 0, 0
		for token := ""; ; {
			page, err := query.NewPage(&weirv1.ListNodesRequest{PageToken: token})
			if err != nil {
				t.Fatal(err)
			}
			found, next := m.page(s, "", page, write)
			size := proto.Size(&weirv1.ListNodesResponse{Nodes: found, NextPageToken: next})
			if size > taken {
				t.Errorf("%s: a page has %d bytes", what, size)
			}
			bytes, nodes, pages = bytes+size, nodes+len(found), pages+1
			if token = next; token == "" || pages > 100 {
				break
			}
		}
		t.Logf("%s: %d bytes in %d pages", what, bytes, pages)
		if nodes != 1016 || pages < 2 {
			t.Errorf("%s: %d nodes in %d pages", what, nodes, pages)
		}
	}
}

// Who reads the first page alone has the muxes and the switches. All nodes are listed once, whatever comes and goes between
// pages; a token of a list by name is refused.
func TestMuxesAndSwitchesAreListedFirst(t *testing.T) {
	t.Parallel()
	m := &Nodes{Config: &Config{Reported: func(*store.State, model.Node) (nodestatus.Status, *weirv1.NodeStatus) {
		return nodestatus.Status{}, nil
	}}}
	write := func(_ *store.State, n model.Node) *weirv1.Node {
		return &weirv1.Node{Name: n.Name, Role: string(n.Role)}
	}
	s := &store.State{}
	for i := range 30 {
		s.PutNode(model.Node{Name: fmt.Sprintf("a-host%02d", i), Role: model.RoleHost})
	}
	s.PutNode(model.Node{Name: "0", Role: model.RoleHost})
	for i := range 6 {
		s.PutNode(model.Node{Name: fmt.Sprintf("mux%d", i), Role: model.RoleMux})
		s.PutNode(model.Node{Name: fmt.Sprintf("leaf%d", i), Role: model.RoleSwitch})
	}
	read := func(role model.Role, size uint32) (all []string) {
		for token := ""; ; {
			page, err := pageOfNodes(&weirv1.ListNodesRequest{Role: string(role), PageSize: size, PageToken: token})
			if err != nil {
				t.Fatal(err)
			}
			nodes, next := m.page(s, role, page, write)
			for _, n := range nodes {
				all = append(all, n.GetName())
			}
			if token = next; token == "" {
				return all
			}
			// Behind, before and on the page that was.
			s.RemoveNode("mux0")
			s.RemoveNode("a-host29")
			s.PutNode(model.Node{Name: "a-new-mux", Role: model.RoleMux})
			s.PutNode(model.Node{Name: "a-host99", Role: model.RoleHost})
		}
	}
	first := read("", 50)
	if len(first) != 43 || first[0] != "mux0" || first[5] != "mux5" || first[6] != "leaf0" || first[12] != "0" || first[42] != "a-host29" {
		t.Errorf("in one page: %v", first)
	}
	if of := read(model.RoleSwitch, 50); len(of) != 6 || of[0] != "leaf0" {
		t.Errorf("switches: %v", of)
	}
	for size := uint32(1); size < 10; size++ {
		got := map[string]int{}
		for _, name := range read("", size) {
			got[name]++
		}
		for i := range 29 { // those that stay
			if name := fmt.Sprintf("a-host%02d", i); got[name] != 1 {
				t.Errorf("in pages of %d: %s is listed %d times", size, name, got[name])
			}
		}
		for _, name := range []string{"0", "mux1", "mux5", "leaf0", "leaf5"} {
			if got[name] != 1 {
				t.Errorf("in pages of %d: %s is listed %d times", size, name, got[name])
			}
		}
	}
	old, err := query.NewPage(&weirv1.ListNodesRequest{PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	byName := query.Collect[*weirv1.Node](old)
	for _, name := range []string{"a", "b"} {
		byName.Add(name, func() *weirv1.Node { return &weirv1.Node{} })
	}
	if _, err := pageOfNodes(&weirv1.ListNodesRequest{PageToken: byName.Next}); byName.Next == "" || err == nil {
		t.Errorf("the token %q of a list by name is taken", byName.Next)
	}
}
