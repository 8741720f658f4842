package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// users are what pauses of configuration are measured by: beside the operators, who wait for managers that do not
// answer, one writer for each manager, and an operator's command line.
type users struct {
	mu    sync.Mutex
	acks  map[string][]time.Time // of writes, by manager
	waits []time.Duration        // of weir apply --wait
	fails []string               // of that

	cancel context.CancelFunc
	ended  sync.WaitGroup
}

const (
	writeEach = 100 * time.Millisecond
	writeTime = time.Second // bounds one write
)

// startUsers has them write until stop.
func (w *world) startUsers(t *testing.T) *users {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	u := &users{acks: map[string][]time.Time{}, cancel: cancel}
	for _, r := range w.cluster.replicas {
		u.ended.Go(func() { u.write(ctx, w, r) })
	}
	u.ended.Go(func() { u.command(ctx, w) })
	w.eventually(t, func(context.Context) error { // who has not written yet does not pause
		u.mu.Lock()
		defer u.mu.Unlock()
		if len(u.acks) < len(w.cluster.replicas) || len(u.waits) == 0 {
			return fmt.Errorf("writes were answered by %d managers, and %d commands", len(u.acks), len(u.waits))
		}
		return nil
	})
	return u
}

func (u *users) write(ctx context.Context, w *world, r *replica) {
	for i := 0; ctx.Err() == nil; i++ {
		vip := newVIP(w.Lab, writerVIP, fmt.Sprint(r.name, i), func() uint32 { return 1 })
		call, cancel := context.WithTimeout(ctx, writeTime)
		_, err := r.ApplyVIPs(call, &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{vip}})
		cancel()
		if err == nil {
			u.mu.Lock()
			u.acks[r.name] = append(u.acks[r.name], time.Now())
			u.mu.Unlock()
		}
		sleep(ctx, writeEach)
	}
}

// command applies a manifest and waits until all muxes run it, as a person does who knows all managers.
func (u *users) command(ctx context.Context, w *world) {
	file := filepath.Join(w.Dir(), "command.yaml")
	for i := 0; ctx.Err() == nil; i++ {
		from := time.Now()
		var out string
		err := os.WriteFile(file, []byte(manifest(w.Lab, commandVIP, "", 1+i%4)), 0o600)
		if err == nil {
			out, err = w.Weir("apply", "-f", file, "--wait")
		}
		u.mu.Lock()
		if u.waits = append(u.waits, time.Since(from)); err != nil {
			u.fails = append(u.fails, fmt.Sprintf("after %v: %v: %s", time.Since(from), err, out))
		}
		u.mu.Unlock()
		sleep(ctx, 5*writeEach)
	}
}

// stop ends them and tells of the managers that were not lost how long writes paused, by any of them and by the one
// where they paused longest, and how long the slowest command took.
func (u *users) stop(t *testing.T, lost []string) (any, one, command time.Duration) {
	t.Helper()
	u.cancel()
	u.ended.Wait()
	var all []time.Time
	for manager, acks := range u.acks {
		all = append(all, acks...)
		if !slices.Contains(lost, manager) {
			one = max(one, gap(acks))
		}
	}
	if len(all) == 0 || len(u.waits) == 0 {
		t.Fatal("nobody wrote anything")
	}
	for _, fail := range u.fails {
		t.Errorf("weir apply --wait: %s", fail)
	}
	return gap(all), one, slices.Max(u.waits)
}

// gap is the longest time between two of them.
func gap(times []time.Time) (longest time.Duration) {
	slices.SortFunc(times, time.Time.Compare)
	for i := 1; i < len(times); i++ {
		longest = max(longest, times[i].Sub(times[i-1]))
	}
	return longest
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
