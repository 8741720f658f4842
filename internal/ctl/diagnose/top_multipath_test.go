package diagnose

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
)

func joinedHost(name string, at time.Duration, of *weirv1.HostMultipath) *weirv1.Node {
	return &weirv1.Node{Name: name, Role: "host", Status: &weirv1.NodeStatus{
		Connected: true, LastSeen: timestamppb.New(time.Unix(1e9, 0).Add(at)), Host: &weirv1.HostStatus{Multipath: of},
	}}
}

func TestRatesOfJoins(t *testing.T) {
	g := newGauge()
	g.observeSubflows([]*weirv1.Node{joinedHost("h1", 0, &weirv1.HostMultipath{Own: 10}), joinedHost("plain", 0, nil)})
	if g.ready() {
		t.Error("there are rates after one report")
	}
	second := &weirv1.HostMultipath{Connections: 7, Names: 5, Joined: 3, Own: 14, Brought: 6, Asked: 2, HandedOn: 8, Unknown: 400}
	for range 2 { // the same report again changes nothing
		g.observeSubflows([]*weirv1.Node{joinedHost("h1", 2*time.Second, second)})
		if !g.ready() {
			t.Fatal("there are no rates")
		}
		var out bytes.Buffer
		if err := (&top{gauge: g}).multipathTable().Write(&out); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Fields(strings.Split(out.String(), "\n")[1]), "h1 7 5 3 2.0 3.0 1.0 4.0 200"; strings.Join(got, " ") != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	g.observeSubflows([]*weirv1.Node{joinedHost("h1", 4*time.Second, &weirv1.HostMultipath{Own: 1, HandedOn: 10})})
	if rates := g.subflows["h1"].rates; rates[0] != 0 || rates[3] != 1 {
		t.Errorf("of counters that began anew: %v", rates)
	}
}
