package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/weirlb/weir/internal/testkit/benchlab"
)

// openPages are open at a time, pagesTime is for how long what they cost is measured, and opening after they show something:
// those that look through VIPs and events go on for a moment.
const (
	openPages = 20
	pagesTime = 30 * time.Second
	opening   = 10 * time.Second
)

// pages measures the web page of a large cluster, in a browser: when it shows something, what it loads, and what those that
// are open cost the manager.
func (b *bench) pages(ctx context.Context) error {
	return b.with(ctx, size{replicas: 1, vips: b.scale(5000), muxes: 8, agents: b.scale(1000)}, func(w *world) error { return w.openPages(ctx) })
}

// shown is what the browser saw of one page.
type shown struct {
	Page  string  `json:"page"`
	Paint float64 `json:"paint"` // ms until the first content
	Data  float64 `json:"data"`  // ms until the page shows what it is about
	KB    float64 `json:"kB"`    // of the page itself, as they came, compressed
}

func (w *world) openPages(ctx context.Context) error {
	before, err := usedWithin(ctx, w)
	if err != nil {
		return err
	}
	var with used
	var failed error
	control := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		time.Sleep(opening)
		with, failed = usedWithin(ctx, w)
	}))
	defer control.Close()
	file := filepath.Join(w.dir, "pages.json")
	browser := exec.CommandContext(ctx, "node_modules/.bin/playwright", "test", "scale.spec.ts", "--output", filepath.Join(w.dir, "browser"))
	browser.Dir, browser.Stderr = "web", os.Stderr
	browser.Env = append(os.Environ(), "WEIR_URL="+w.managers[0].url(), "WEIR_SCALE="+file, "WEIR_CONTROL="+control.URL, fmt.Sprint("WEIR_PAGES=", openPages))
	if out, err := browser.Output(); err != nil {
		return fmt.Errorf("open pages in a browser (make ui-test installs what it takes): %w: %s", err, out)
	}
	after, err := usedWithin(ctx, w)
	if err := errors.Join(failed, err); err != nil {
		return err
	}
	idle := min(before.cpu, after.cpu) // one that was loaded just now is busy with that
	var pages []shown
	text, err := os.ReadFile(file)
	if err := errors.Join(err, json.Unmarshal(text, &pages)); err != nil {
		return err
	}
	for _, p := range pages {
		ms := func(n float64) []time.Duration { return []time.Duration{time.Duration(n * float64(time.Millisecond))} }
		w.add("first paint of "+p.Page, ms(p.Paint))
		w.add("data of "+p.Page, ms(p.Data))
		fmt.Fprintf(os.Stderr, "  %s: %.1f kB loaded\n", p.Page, p.KB)
	}
	w.add(fmt.Sprintf("%d pages open", openPages), []time.Duration{max(with.cpu-idle, 0)}, func(r *result) {
		r.Seconds, r.Managers = pagesTime.Seconds(), max(with.cpu-idle, 0).Seconds()
		r.PageKiB, r.LoadedKB = int(with.live-before.live)/openPages/1024, pages[0].KB
		fmt.Fprintf(os.Stderr, "  all pages: %.1f %% of a core; each: %d KiB of the heap, %d KiB resident with garbage\n",
			100*r.Managers/r.Seconds, r.PageKiB, int(with.resident-before.resident)/openPages/1024)
	})
	return nil
}

// used is what a manager used in pagesTime, and holds at its end.
type used struct {
	cpu time.Duration
	memoryUse
}

func usedWithin(ctx context.Context, w *world) (u used, err error) {
	pid := w.managers[0].command.Process.Pid
	began, err := benchlab.ProcessTime(pid)
	if err != nil {
		return u, err
	}
	select {
	case <-time.After(pagesTime):
	case <-ctx.Done():
		return u, ctx.Err()
	}
	ended, err := benchlab.ProcessTime(pid)
	if err != nil {
		return u, err
	}
	u.cpu = ended - began
	u.memoryUse, err = w.memoryUse(ctx)
	return u, err
}
