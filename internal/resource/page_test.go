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
			found, next := query.Nodes(s, "", page, write)
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
