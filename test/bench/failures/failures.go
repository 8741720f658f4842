package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/migrate"
	"github.com/weirlb/weir/internal/lab/netlab"
)

const phase = 4 * time.Second // that nothing changes

// measureFallback has the agent of the clients' host killed and its programs and tables removed, and has it come back.
func (w *world) measureFallback(ctx context.Context, how options, to *report) error {
	t, err := w.begin("acme1", how.fallback, how.fallbackEvery)
	if err != nil {
		return err
	}
	if err := wait(ctx, phase); err != nil {
		return err
	}
	to.Notes["fallback-before-ms"] = t.reset()
	agent, err := w.Process("chost1", "weir-agent")
	if err != nil {
		return err
	}
	if err := agent.Stop(unix.SIGKILL, bound); err != nil {
		return err
	}
	if out, err := w.Run("chost1", w.Find("weir-agent"), "unload", "--pin-path", w.PinPath("chost1")); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if err := wait(ctx, phase); err != nil {
		return err
	}
	gone := t.reset()
	to.Notes["fallback-gone-ms"] = gone
	if _, err := w.Restart("chost1", "weir-agent"); err != nil {
		return err
	}
	err = netlab.Poll(ctx, bound, func() error {
		direct, err := w.direct("chost1")
		if err == nil && direct < how.fallback {
			err = fmt.Errorf("%d flows are direct", direct)
		}
		return err
	})
	if err := errors.Join(err, wait(ctx, phase)); err != nil {
		return err
	}
	back := t.reset()
	to.Notes["fallback-back-ms"] = back
	to.add("fallback-broken", float64(t.end()), 0)
	to.add("fallback-stall-ms", max(gone, back), 300)
	return nil
}

// measureMigration has a client with connections under load move to another host.
func (w *world) measureMigration(ctx context.Context, how options, to *report) error {
	t, err := w.begin("acme1", how.migrate, how.moveEvery)
	if err != nil {
		return err
	}
	if err := wait(ctx, phase); err != nil {
		return err
	}
	t.reset()
	before, err := w.forwarded()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := migrate.Tenant(ctx, w.Lab, "acme1", "chost2"); err != nil {
		return err
	}
	to.Notes["migration-move-ms"] = float64(time.Since(began).Milliseconds())
	err = netlab.Poll(ctx, bound, func() error {
		direct, err := w.direct("chost2")
		if err == nil && direct < how.migrate {
			err = fmt.Errorf("%d flows are direct", direct)
		}
		return err
	})
	if err := errors.Join(err, wait(ctx, phase)); err != nil {
		return err
	}
	after, err := w.forwarded()
	if err != nil {
		return err
	}
	to.Notes["migration-stall-ms"] = t.reset()
	to.add("migration-broken", float64(t.end()), 0)
	to.add("migration-mux-packets-each", float64(after-before)/float64(how.migrate), 2)
	return nil
}

// forwarded is how many packets the muxes have sent to hosts.
func (w *world) forwarded() (packets uint64, err error) {
	for _, mux := range w.Of(netlab.Mux) {
		n, failed := w.Forwarded(mux.Name)
		packets, err = packets+n, errors.Join(err, failed)
	}
	return packets, err
}
