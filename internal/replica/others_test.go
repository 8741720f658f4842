package replica

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlb/weir/internal/store"
)

// A manager that has another address is followed there when it is followed no more at the one before; nobody is followed
// when it returns.
func TestAnotherAddressIsFollowedAfterTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStore()
		at := func(address string) {
			f.set(func() {
				f.state = &store.State{Managers: map[string]store.Manager{
					"own": {Name: "own", Address: "a"}, "other": {Name: "other", Address: address},
				}}
			})
		}
		var mu sync.Mutex
		var log []string
		note := func(line string) {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, line)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan bool)
		at("b")
		go func() {
			defer close(ended)
			FollowOthers(ctx, "own", f.Watch, func(ctx context.Context, m store.Manager) {
				note("begin " + m.Address)
				<-ctx.Done()
				time.Sleep(time.Second)
				note("end " + m.Address)
			})
		}()
		synctest.Wait()
		at("c")
		time.Sleep(2 * time.Second)
		at("c") // the same
		synctest.Wait()
		cancel()
		<-ended
		if want := []string{"begin b", "end b", "begin c", "end c"}; !slices.Equal(log, want) {
			t.Errorf("it did %q, want %q", log, want)
		}
	})
}
