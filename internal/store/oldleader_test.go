package store

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/weirlb/weir/internal/election"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/vipstatus"
	etcdtest "github.com/weirlb/weir/internal/testkit/etcd"
)

// link is a way to etcd that can be held up: what is sent meanwhile arrives later.
type link struct {
	to string

	mu    sync.Mutex
	freed *sync.Cond
	held  bool
}

// startLink returns a link to etcd, and its URL, until the test ends.
func startLink(t *testing.T, url string) (*link, string) {
	t.Helper()
	l := &link{to: strings.TrimPrefix(url, "http://")}
	l.freed = sync.NewCond(&l.mu)
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // on loopback
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", l.to) //nolint:noctx // on loopback
			if err != nil {
				near.Close()
				continue
			}
			open.Go(func() { l.carry(far, near) })
			open.Go(func() { l.carry(near, far) })
		}
	})
	t.Cleanup(func() {
		l.hold(false)
		listener.Close()
		open.Wait()
	})
	return l, "http://" + listener.Addr().String()
}

// carry copies one way, but for when the link is held up.
func (l *link) carry(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		l.mu.Lock()
		for l.held {
			l.freed.Wait()
		}
		l.mu.Unlock()
		if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

func (l *link) hold(held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = held
	l.freed.Broadcast()
}

// A leader's transaction that was on its way for so long that another leads meanwhile is refused by the fence: it
// would have been written else, as nobody wrote before it.
func TestOldLeaderCommitsNothing(t *testing.T) {
	url := etcdtest.Start(t)
	held, through := startLink(t, url)
	old, _ := open(t, etcd.Config{Name: "m1", Endpoints: []string{through}})
	eventually(t, "m1 leads", func() bool { epoch, _ := old.Election.Epoch(); return epoch != 0 })
	fence, epoch, err := old.Election.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	base := old.State()
	other, _ := open(t, etcd.Config{Name: "m2", Endpoints: []string{url}})

	held.hold(true)
	committed := make(chan error, 1)
	go func() {
		w := &write{ctx: t.Context(), decide: change(Change{VIPs: []model.VIP{vip("old", "203.0.113.1")}})}
		f, _ := old.fold([]*write{w})
		_, won, err := old.commit(context.Background(), fence, epoch, f)
		if err == nil && won {
			err = errors.New("it was written")
		}
		committed <- err
	}()
	eventually(t, "m2 leads, as m1's lease expired", func() bool { newer, _ := other.Election.Epoch(); return newer > epoch })
	if now := other.State(); now.Generation != base.Generation {
		t.Fatalf("generation %d became %d: the old leader could be refused for that", base.Generation, now.Generation)
	}
	held.hold(false)
	if err := <-committed; !errors.Is(err, election.ErrNotLeader) {
		t.Errorf("the old leader's transaction: %v, want %v", err, election.ErrNotLeader)
	}
	mustUpdate(t, other, Change{VIPs: []model.VIP{vip("new", "203.0.113.2")}})
	if s := other.State(); s.VIPs.Has("old") || !s.VIPs.Has("new") {
		t.Errorf("the store holds old: %t, new: %t", s.VIPs.Has("old"), s.VIPs.Has("new"))
	}
	eventually(t, "m1 knows that it leads no more, and shows what m2 wrote", func() bool {
		epoch, _ := old.Election.Epoch()
		return epoch == 0 && old.State().VIPs.Has("new")
	})
}

// A replica that believes to lead, and is doubted, finds out that it does not, and steps down.
func TestDoubtedLeaderStepsDown(t *testing.T) {
	url := etcdtest.Start(t)
	leader, _ := open(t, etcd.Config{Name: "m1", Endpoints: []string{url}})
	eventually(t, "m1 leads", func() bool { epoch, _ := leader.Election.Epoch(); return epoch != 0 })
	epoch, _ := leader.Election.Epoch()
	if err := leader.Election.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now, _ := leader.Election.Epoch(); now != epoch {
		t.Errorf("a doubt that was wrong ended epoch %d: it is %d", epoch, now)
	}
	believes, _ := open(t, etcd.Config{Name: "m2", Endpoints: []string{url}})
	believes.Election.SetEpoch(epoch - 1)
	if err := believes.Election.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now, _ := believes.Election.Epoch(); now != 0 {
		t.Errorf("m2 believes on to lead in epoch %d, the leader's is %d", now, epoch)
	}
}

// Conditions of VIPs are the leader's to write: of one that believes to lead, and does not, the store takes none.
func TestOldLeaderWritesNoConditions(t *testing.T) {
	url := etcdtest.Start(t)
	leader, _ := open(t, etcd.Config{Name: "m1", Endpoints: []string{url}})
	eventually(t, "m1 leads", func() bool { epoch, _ := leader.Election.Epoch(); return epoch != 0 })
	conditions := map[string]vipstatus.Conditions{"sea": {Backends: 1}}
	if err := leader.Conditions.Put(t.Context(), conditions, nil); err != nil {
		t.Fatal(err)
	}
	epoch, _ := leader.Election.Epoch()
	believes, _ := open(t, etcd.Config{Name: "m2", Endpoints: []string{url}})
	believes.Election.SetEpoch(epoch - 1)
	if err := believes.Conditions.Put(t.Context(), conditions, nil); !errors.Is(err, election.ErrNotLeader) {
		t.Errorf("got %v, want %v", err, election.ErrNotLeader)
	}
}
