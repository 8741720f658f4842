package netns

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

var errEnded = errors.New("function ended its goroutine")

// Do runs fn on a thread inside the namespace and waits for it. Sockets that fn opens stay in the
// namespace; goroutines that it starts do not run inside.
func (ns *NS) Do(fn func() error) error {
	return onDyingThread(func() error {
		if err := ns.enter(); err != nil {
			return err
		}
		return fn()
	})
}

func (ns *NS) enter() error {
	if err := netns.Set(ns.handle); err != nil {
		return fmt.Errorf("enter namespace %s: %w", ns.name, err)
	}
	return nil
}

// onDyingThread runs fn on a thread that nothing else will ever run on.
func onDyingThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		err := errEnded
		defer func() { done <- err }()
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The process's first thread never dies, and what /proc tells of the process is what
			// it tells of that thread. While this goroutine holds it, another gets another.
			defer runtime.UnlockOSThread()
			err = onDyingThread(fn)
			return
		}
		err = fn() // stays locked, so the thread dies with this goroutine
	}()
	return <-done
}

// thread is a thread inside a namespace that lives until end.
type thread struct {
	jobs chan func()
	done chan error
}

func (ns *NS) newThread() *thread {
	t := &thread{jobs: make(chan func()), done: make(chan error, 1)}
	go func() {
		t.done <- ns.Do(func() error {
			for job := range t.jobs {
				job()
			}
			return nil
		})
	}()
	return t
}

// do runs fn on the thread.
func (t *thread) do(fn func() error) error {
	result := make(chan error, 1)
	select {
	case t.jobs <- func() { result <- fn() }:
		return <-result
	case err := <-t.done: // could not enter
		t.done <- err
		return err
	}
}

// end ends the thread; an error is why it never was inside.
func (t *thread) end() error {
	close(t.jobs)
	return <-t.done
}
