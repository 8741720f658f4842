package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// readyTimeout bounds all checks of one question.
	readyTimeout = 3 * time.Second
	// scrapesAtOnce bounds what scrapers may cost.
	scrapesAtOnce = 2
	scrapeTimeout = 10 * time.Second
)

// check is one thing that must hold before the daemon does its work.
type check struct {
	name string
	ask  func(context.Context) (string, error)
}

// Ready adds what must hold before the daemon does its work: ask returns how it stands, or what is
// missing. It is called when somebody asks.
func (t *Telemetry) Ready(name string, ask func(context.Context) (string, error)) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.checks = append(t.checks, check{name, ask})
}

func newServer(t *Telemetry) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.InstrumentMetricHandler(t.registry, promhttp.HandlerFor(t, promhttp.HandlerOpts{
		ErrorLog: scrapeLog{t.log}, ErrorHandling: promhttp.ContinueOnError,
		MaxRequestsInFlight: scrapesAtOnce, Timeout: scrapeTimeout,
	})))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", t.readyz)
	return &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 2 * scrapeTimeout, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(t.log.Handler(), slog.LevelDebug),
	}
}

// readyz says line by line what holds and what does not.
func (t *Telemetry) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	t.mu.Lock()
	checks := t.checks
	t.mu.Unlock()
	var lines strings.Builder
	var failed error
	if len(checks) == 0 {
		failed = errors.New("starting")
		lines.WriteString("not ready: the program starts\n")
	}
	for _, c := range checks {
		stands, err := c.ask(ctx)
		failed = errors.Join(failed, err)
		if err != nil {
			fmt.Fprintf(&lines, "not ready: %s: %v\n", c.name, err)
			continue
		}
		fmt.Fprintf(&lines, "ready: %s: %s\n", c.name, stands)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if failed != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	w.Write([]byte(lines.String())) //nolint:errcheck // the client is gone: nobody is left to tell
}

// scrapeLog takes what a collector could not read.
type scrapeLog struct{ log *slog.Logger }

// Println is for promhttp.
func (l scrapeLog) Println(v ...any) {
	l.log.Warn("a metric could not be read", "err", fmt.Sprint(v...))
}
