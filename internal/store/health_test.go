package store

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/election"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/keyspace"
	"github.com/weirlb/weir/internal/store/nodestatus"
	etcdtest "github.com/weirlb/weir/internal/testkit/etcd"
)

func silentHealth(*State) desired.HostHealth {
	said := model.BackendHealth{Endpoint: key, Backend: table.Rows[0].Backend, Health: model.HealthUnhealthy, Silent: true}
	return desired.HostHealth{{Endpoint: key, Backend: said.Backend}: said}
}

// Only who leads says of a host that it is silent, and of none that has a stream with another manager.
func TestOnlyTheLeaderSaysThatAHostIsSilent(t *testing.T) {
	endpoints := []string{etcdtest.Start(t)}
	leader, _ := open(t, etcd.Config{Name: "m1", Endpoints: endpoints})
	eventually(t, "m1 leads", func() bool { epoch, _ := leader.Election.Epoch(); return epoch != 0 })
	mustUpdate(t, leader, Change{Nodes: []model.Node{host}})
	other, _ := open(t, etcd.Config{Name: "m2", Endpoints: endpoints})
	if err := other.Health.UpdateSilent(t.Context(), "host1", silentHealth); !errors.Is(err, election.ErrNotLeader) {
		t.Errorf("a follower: %v, want %v", err, election.ErrNotLeader)
	}
	epoch, _ := leader.Election.Epoch()
	other.Election.SetEpoch(epoch - 1) // it was frozen, and believes to lead
	if err := other.Health.UpdateSilent(t.Context(), "host1", silentHealth); !errors.Is(err, election.ErrNotLeader) {
		t.Errorf("one that led: %v, want %v", err, election.ErrNotLeader)
	}
	if n := len(leader.State().Health.At("host1")); n > 0 {
		t.Errorf("the host is silent, by a manager that does not lead")
	}
	end := other.Presence.Open("host1")
	eventually(t, "the stream is open", func() bool { return leader.State().Streams.At("host1") })
	calls := 0
	err := leader.Health.UpdateSilent(t.Context(), "host1", func(s *State) desired.HostHealth {
		if calls++; calls > 1 && s.Streams.At("host1") {
			return s.Health.At("host1") // as it decides when it knows
		}
		return silentHealth(s) // as it decides on a State from before
	})
	if err != nil || calls != 2 || len(leader.State().Health.At("host1")) > 0 {
		t.Errorf("of a host that is connected elsewhere it wrote %v, after %d tries: %v", leader.State().Health.At("host1"), calls, err)
	}
	end()
	eventually(t, "the stream is gone", func() bool { return !leader.State().Streams.At("host1") })
	if err := leader.Health.UpdateSilent(t.Context(), "host1", silentHealth); err != nil || len(leader.State().Health.At("host1")) != 1 {
		t.Errorf("of a silent host the leader wrote %v: %v", leader.State().Health.At("host1"), err)
	}
}

// A health that is gone when the State shows it still is waited for, not asked for without end.
func TestHealthThatIsGone(t *testing.T) {
	url := etcdtest.Start(t)
	s, _ := open(t, etcd.Config{Name: "m1", Endpoints: []string{url}})
	eventually(t, "it leads", func() bool { epoch, _ := s.Election.Epoch(); return epoch != 0 })
	mustUpdate(t, s, Change{Nodes: []model.Node{host}})
	if err := s.Health.Update(t.Context(), "host1", silentHealth); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	calls, first := 0, s.State()
	err := s.Health.Update(ctx, "host1", func(state *State) desired.HostHealth {
		if calls++; calls == 1 {
			if _, err := s.etcd.Delete(ctx, keyspace.Health+"host1"); err != nil {
				t.Error(err)
			}
		}
		healthy := silentHealth(state)
		for at, h := range healthy {
			h.Health, h.Reason = model.HealthHealthy, strings.Repeat("x", calls)
			healthy[at] = h
		}
		return healthy
	})
	if err != nil || calls > 2 || first.Health.Len() != 1 {
		t.Errorf("%d tries, %v", calls, err)
	}
}

// A status that is too large is not stored, and those of others are, that come with it; together they are more than an external etcd takes.
func TestOneLargeStatusFailsAlone(t *testing.T) {
	s, _ := open(t, etcd.Config{Name: "m1", Endpoints: []string{etcdtest.Start(t)}})
	eventually(t, "it leads", func() bool { epoch, _ := s.Election.Epoch(); return epoch != 0 })
	var nodes []model.Node
	failed := make(chan string, 6)
	sizes := []int{1 << 10, 4 << 20, 600 << 10, 600 << 10, 600 << 10, 1 << 10}
	for i := range sizes {
		node := host
		node.Name = "host" + string(rune('a'+i))
		nodes = append(nodes, node)
	}
	mustUpdate(t, s, Change{Nodes: nodes})
	for i, size := range sizes { // no news: all are written together
		s.Status.Put(nodes[i].Name, nodestatus.Write{
			Status: nodestatus.Status{Generation: 7}, Failed: func(error) { failed <- nodes[i].Name },
			Detail: func() ([]byte, error) { return []byte(`"` + strings.Repeat("x", size) + `"`), nil },
		})
	}
	eventually(t, "all others are stored", func() bool { return s.State().Status.Len() == 5 })
	if name := <-failed; name != "hostb" || len(failed) > 0 {
		t.Errorf("%s failed, and %d more", name, len(failed))
	}
}
