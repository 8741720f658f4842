package manager

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	etcdtest "github.com/weirlb/weir/internal/testkit/etcd"
)

// slowLine is a way to an etcd that can hold back what etcd says.
type slowLine struct {
	url string

	mu    sync.Mutex
	free  chan struct{} // closed while nothing is held back
	asked chan struct{} // closed when etcd is asked something while its answers are held back
	once  *sync.Once
}

func newSlowLine(t *testing.T, to string) *slowLine {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := make(chan struct{})
	close(free)
	l := &slowLine{url: "http://" + listener.Addr().String(), free: free, asked: make(chan struct{}), once: &sync.Once{}}
	var carried sync.WaitGroup
	carried.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			carried.Go(func() { l.carry(near, strings.TrimPrefix(to, "http://")) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		carried.Wait()
	})
	return l
}

// carry carries one connection, until either side ends it.
func (l *slowLine) carry(near net.Conn, to string) {
	defer near.Close()
	far, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer far.Close()
	var both sync.WaitGroup
	both.Go(func() {
		l.copy(far, near, func(free, asked chan struct{}, once *sync.Once) {
			select {
			case <-free:
			default:
				once.Do(func() { close(asked) })
			}
		})
		far.Close()
	})
	both.Go(func() {
		l.copy(near, far, func(free, _ chan struct{}, _ *sync.Once) { <-free })
		near.Close()
	})
	both.Wait()
}

func (l *slowLine) copy(to io.Writer, from io.Reader, before func(free, asked chan struct{}, once *sync.Once)) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		l.mu.Lock()
		free, asked, once := l.free, l.asked, l.once
		l.mu.Unlock()
		before(free, asked, once)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// hold holds back what etcd says until release is called. The channel is closed when etcd was asked something meanwhile.
func (l *slowLine) hold() (asked <-chan struct{}, release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	free := make(chan struct{})
	l.free, l.asked, l.once = free, make(chan struct{}), &sync.Once{}
	return l.asked, sync.OnceFunc(func() { close(free) })
}

// A user whom one manager has made is not refused by another that has not heard of it yet.
func TestANewUserIsKnownEverywhere(t *testing.T) {
	store := etcdtest.Start(t)
	m, admin, _ := secure(t, Config{Name: "m1", EtcdEndpoints: []string{store}})
	line := newSlowLine(t, store)
	other, err := New(t.Context(), Config{
		Name: "m2", EtcdEndpoints: []string{line.url}, Listen: "127.0.0.1:0", DataDir: t.TempDir(), Version: "test", Log: logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	runManager(t, other)

	asked, release := line.hold()
	defer release()
	rita := operator(t, m, admin, "https://"+other.Address().String(), "rita", "*")
	answered := make(chan error, 1)
	go func() {
		_, err := rita.WhoAmI(t.Context(), &weirv1.WhoAmIRequest{})
		answered <- err
	}()
	select {
	case <-asked:
	case err := <-answered:
		t.Fatalf("a manager that has heard nothing answers: %v", err)
	}
	release()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
