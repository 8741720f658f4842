package audit

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/tokenbucket"
	"github.com/weirlb/weir/internal/trust"
)

// How the audit log is written: what comes within auditPause in one go, of refusals at most
// maxRefusals, so that strangers can't fill the store.
const (
	auditPause  = 250 * time.Millisecond
	maxRefusals = 50
	maxQueued   = 20000
	pruneEvery  = time.Minute
)

// store is where the audit log is stored.
type store interface {
	Append(ctx context.Context, entries []trust.AuditEntry) error
	Prune(ctx context.Context) error
}

// Log writes the audit log.
type Log struct {
	manager string
	store   store
	log     *slog.Logger
	wake    chan struct{}

	rates tokenbucket.Buckets // of refusals, by who is refused

	mu      sync.Mutex
	queued  []trust.AuditEntry
	refused int // of those queued
	left    int // refused since, and not queued
	lost    int // changes that the queue had no room for
}

// New returns a writer of the audit log of the manager of that name.
func New(manager string, store store, log *slog.Logger) *Log {
	return &Log{manager: manager, store: store, log: log, wake: make(chan struct{}, 1)}
}

// Record notes a request that ended, if it changed something or was refused. header and status are those of the answer.
func (a *Log) Record(c *Call, path string, header http.Header, status int) {
	if !c.ended {
		c.code, c.reason = refusedByProtocol(header, status)
	}
	if c.code == "" && !c.changes || c.caller.Method == trust.Insecure {
		return
	}
	if c.code != "" && !c.changes && !audited[c.code] {
		return
	}
	entry := trust.AuditEntry{
		Time: time.Now().UTC(), Identity: c.caller.String(), From: c.caller.From, Procedure: c.procedure, Subject: c.subject,
		Result: "ok", Reason: shortened(c.reason), Manager: a.manager, Refused: c.code != "",
	}
	if entry.Procedure == "" {
		entry.Procedure = shortened(path)
	}
	if entry.Refused {
		entry.Result = c.code
	}
	a.add(entry)
}

// Refusals of one caller that are noted: so many at once, and then so many a second. Of strangers, a caller is an
// address.
const (
	refusalsAtOnce = 100
	refusalsRate   = 0.2
)

// isRepetitive says whether so much was refused to one caller lately that more of it would drive out what others did.
func (a *Log) isRepetitive(e trust.AuditEntry) bool {
	who := e.Identity
	if who == (trust.Identity{}).String() {
		who = limits.SourceOf(e.From)
	}
	return e.Refused && a.rates.Take(who, refusalsRate, refusalsAtOnce, 1, e.Time) > 0
}

func (a *Log) add(e trust.AuditEntry) {
	repetitive := a.isRepetitive(e)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case repetitive || e.Refused && a.refused >= maxRefusals:
		a.left++
	case len(a.queued) >= maxQueued:
		a.lost++
	default:
		if e.Refused {
			a.refused++
		}
		a.queued = append(a.queued, e)
	}
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// drain removes all entries from the queue and returns them.
func (a *Log) drain() []trust.AuditEntry {
	a.mu.Lock()
	defer a.mu.Unlock()
	entries := a.queued
	for what, n := range map[string]int{"refused requests": a.left, "changes": a.lost} {
		if n > 0 {
			entries = append(entries, trust.AuditEntry{
				Time: time.Now().UTC(), Identity: "nobody", Result: "left out", Manager: a.manager, Refused: true,
				Reason: fmt.Sprintf("%d more %s came too fast to be noted", n, what),
			})
		}
	}
	a.queued, a.refused, a.left, a.lost = nil, 0, 0, 0
	return entries
}

// Run logs and stores what was recorded until ctx ends, and then the rest.
func (a *Log) Run(ctx context.Context) error {
	pruned := time.Time{}
	for {
		select {
		case <-a.wake:
		case <-ctx.Done():
			a.flush(context.WithoutCancel(ctx))
			return nil
		}
		a.flush(ctx)
		if time.Since(pruned) > pruneEvery {
			pruned = time.Now()
			if err := a.store.Prune(ctx); err != nil {
				a.log.Warn("can't prune the audit log", "err", err)
			}
		}
		select {
		case <-time.After(auditPause):
		case <-ctx.Done():
		}
	}
}

func (a *Log) flush(ctx context.Context) {
	entries := a.drain()
	for _, e := range entries {
		if e.Refused {
			a.log.Warn("audit: refused", "identity", e.Identity, "remote", e.From, "procedure", e.Procedure, "subject", e.Subject,
				"result", e.Result, "reason", e.Reason)
			continue
		}
		a.log.Info("audit: changed", "identity", e.Identity, "remote", e.From, "procedure", e.Procedure, "subject", e.Subject)
	}
	if len(entries) == 0 {
		return
	}
	if err := a.store.Append(ctx, entries); err != nil {
		a.log.Warn("can't store the audit log, it stands in this log only", "err", err)
	}
}
