package nodelifecycle

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

func TestSilentHosts(t *testing.T) {
	const bound = 5 * time.Second
	begin := time.Unix(1000, 0)
	hosts := func(connected ...string) *store.State {
		s := &store.State{}
		for i := range 4 {
			name := fmt.Sprintf("host%d", i+1)
			s.PutNode(model.Node{Name: name, Role: model.RoleHost})
		}
		s.PutNode(model.Node{Name: "mux1", Role: model.RoleMux})
		for _, name := range connected {
			s.Streams.Set(name, true)
		}
		return s
	}
	steps := []struct {
		name  string
		state *store.State
		after time.Duration
		want  []string
	}{
		{"all there", hosts("host1", "host2", "host3", "host4"), 0, nil},
		{"just gone", hosts("host2", "host3", "host4"), time.Second, nil},
		{"gone for long", hosts("host2", "host3", "host4"), time.Second + bound, []string{"host1"}},
		{"a second one, just gone", hosts("host3", "host4"), 2*time.Second + bound, []string{"host1"}},
		{"most gone: the manager is cut off", hosts("host4"), 60 * time.Second, nil},
		{"half there again: the others have as long", hosts("host2", "host4"), 61 * time.Second, nil},
		{"the last are on their way", hosts("host2", "host3", "host4"), 60*time.Second + bound, nil},
		{"one stays away", hosts("host2", "host3", "host4"), 61*time.Second + bound, []string{"host1"}},
		{"back for a moment", hosts("host1", "host2", "host4"), 68 * time.Second, nil},
		{"gone anew", hosts("host2", "host4", "host3"), 69 * time.Second, nil},
	}
	known := newSilence()
	for _, step := range steps {
		got := known.hosts(step.state, begin.Add(step.after), bound)
		slices.Sort(got)
		if !slices.Equal(got, step.want) {
			t.Errorf("%s: got %v, want %v", step.name, got, step.want)
		}
	}
}

// Hosts that were replaced, and that nobody deleted, do not hide that one of the others died; hosts that are cut off together count
// for as long as they are.
func TestReplacedHostsDoNotCount(t *testing.T) {
	t.Parallel()
	const bound = 5 * time.Second
	begin := time.Unix(100000, 0)
	hosts := func(connected int) *store.State {
		s := &store.State{}
		for i := range 19 {
			name := fmt.Sprintf("host%02d", i)
			s.PutNode(model.Node{Name: name, Role: model.RoleHost})
			if i < connected {
				s.Streams.Set(name, true)
			}
			seen := begin
			if i >= 9 {
				seen = begin.Add(-2 * staleAfter)
			}
			s.Status.Set(name, nodestatus.Status{Seen: seen})
		}
		return s
	}
	known := newSilence()
	known.hosts(hosts(9), begin, bound)
	known.hosts(hosts(8), begin.Add(time.Second), bound)
	if got := known.hosts(hosts(8), begin.Add(time.Second+bound), bound); !slices.Contains(got, "host08") || known.most {
		t.Errorf("10 hosts were replaced, one of 9 died, and silent are %v", got)
	}
	for after := time.Minute; after < 3*staleAfter; after += time.Second {
		if got := known.hosts(hosts(1), begin.Add(after), bound); len(got) > 0 || !known.most {
			t.Fatalf("8 of 9 are cut off, and after %s silent are %v", after, got)
		}
	}
	// The next leader meets them after some minutes.
	known = newSilence()
	known.hosts(hosts(8), begin.Add(5*time.Minute), bound)
	if got := known.hosts(hosts(8), begin.Add(5*time.Minute+bound), bound); !slices.Contains(got, "host08") {
		t.Errorf("the next leader finds %v silent", got)
	}
	if got := known.hosts(hosts(0), begin.Add(5*staleAfter), bound); len(got) > 0 {
		t.Errorf("none is connected, and silent are %v", got)
	}
}
