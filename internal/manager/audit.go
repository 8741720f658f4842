package manager

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/rpc"
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

// called is what becomes known of one request on its way.
type called struct {
	caller    trust.Identity
	procedure string // empty: it did not get as far as a call
	subject   string
	changes   bool
	ended     bool
	code      string // empty: it went well
	reason    string
	began     func() // of a stream: its first message is there
}

type calledKey struct{}

// note says what the request is about.
func note(ctx context.Context, procedure string, message any) {
	if c, ok := ctx.Value(calledKey{}).(*called); ok {
		c.procedure, c.subject = procedure, subject(procedure, message)
		c.changes = authz.Changes(procedure) && !isDryRun(message)
	}
}

// noteEnd says how the call ended.
func noteEnd(ctx context.Context, err error) {
	if c, ok := ctx.Value(calledKey{}).(*called); ok {
		c.end(err)
	}
}

// beganOf is what a stream calls at its first message.
func beganOf(ctx context.Context) func() {
	if c, ok := ctx.Value(calledKey{}).(*called); ok && c.began != nil {
		return c.began
	}
	return func() {}
}

// auditElsewhere says that another manager carries the call out, and audits it.
func auditElsewhere(ctx context.Context) {
	if c, ok := ctx.Value(calledKey{}).(*called); ok {
		c.changes = false
	}
}

func (c *called) end(err error) {
	c.ended = true
	// Who asks for more ports than there are is no stranger.
	if _, _, ports := rpc.PortsRefused(err); err != nil && !ports {
		c.code, c.reason = apierr.Code(err), err.Error()
	}
}

func isDryRun(message any) bool {
	dry, ok := message.(interface{ GetDryRun() bool })
	return ok && dry.GetDryRun()
}

// nouns are what the names in calls are of, by the procedure's noun.
var nouns = map[string]string{
	"VIP": "vip", "VIPs": "vip", "Ports": "vip", "AddressPool": "pool", "PrefixList": "prefixlist", "Node": "node", "Manager": "manager", "User": "user", "Tenant": "tenant", "Tenants": "tenant",
}

// nounOf is what a name in a call is of.
func nounOf(procedure string) string {
	name := path.Base(procedure)
	return nouns[strings.TrimLeftFunc(name[min(1, len(name)):], unicode.IsLower)]
}

// subject names what a call is about, as kind/name.
func subject(procedure string, message any) string {
	var names []string
	add := func(kind, name string) { names = append(names, kind+"/"+shortened(name)) }
	switch r := message.(type) {
	case *weirv1.ApplyVIPsRequest:
		for _, pool := range r.GetPools() {
			add("pool", pool.GetName())
		}
		for _, list := range r.GetPrefixLists() {
			add("prefixlist", list.GetName())
		}
		for _, vip := range r.GetVips() {
			add("vip", vip.GetName())
		}
	case *weirv1.ApplyTenantsRequest:
		for _, t := range r.GetTenants() {
			add("tenant", t.GetName())
		}
	case *weirv1.CreateVIPRequest:
		add("vip", r.GetVip().GetName())
	case *weirv1.CreateAddressPoolRequest:
		add("pool", r.GetPool().GetName())
	case *weirv1.CreatePrefixListRequest:
		add("prefixlist", r.GetPrefixList().GetName())
	case *weirv1.CreateUserRequest:
		add("user", r.GetUser().GetName())
	case *weirv1.CreateTokenRequest:
		names = append(names, "token of "+r.GetRole()+"/"+cmp.Or(r.GetName(), "*"))
	case *weirv1.DeleteTokenRequest:
		add("token", r.GetId())
	case *weirv1.JoinRequest:
		add(r.GetRole(), r.GetName())
	case *weirv1.RevokeMemberRequest:
		add(r.GetRole(), r.GetName())
	case *weirv1.CaptureRequest:
		add("mux", r.GetMux())
	case interface{ GetName() string }:
		if noun := nounOf(procedure); noun != "" {
			add(noun, r.GetName())
		} else {
			names = append(names, r.GetName())
		}
	}
	const most = 10
	if n := len(names); n > most {
		names = append(names[:most], fmt.Sprintf("and %d more", n-most))
	}
	return shortened(strings.Join(names, " "))
}

// auditor writes the audit log.
type auditor struct {
	manager string
	wake    chan struct{}

	rates buckets // of refusals, by who is refused

	mu      sync.Mutex
	queued  []trust.AuditEntry
	refused int // of those queued
	left    int // refused since, and not queued
	lost    int // changes that the queue had no room for
}

func newAuditor(manager string) *auditor {
	return &auditor{manager: manager, wake: make(chan struct{}, 1)}
}

// record notes a request that ended, if it changed something or was refused.
func (a *auditor) record(c *called, path string, answer *watchedWriter) {
	if !c.ended {
		c.code, c.reason = refusedByProtocol(answer)
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

// Refusals of one caller that are noted: so many at once, and then so many a second. Of strangers, a caller is an address.
const (
	refusalsAtOnce = 100
	refusalsRate   = 0.2
)

// isRepetitive says whether so much was refused to one caller lately that more of it would drive out what others did.
func (a *auditor) isRepetitive(e trust.AuditEntry) bool {
	who := e.Identity
	if who == (trust.Identity{}).String() {
		who = sourceOf(e.From)
	}
	return e.Refused && a.rates.take(who, refusalsRate, refusalsAtOnce, 1, e.Time) > 0
}

// audited are the codes of refusals that tell of strangers; others are noted only of what would have
// changed something.
var audited = map[string]bool{
	connect.CodeUnauthenticated.String():   true,
	connect.CodePermissionDenied.String():  true,
	connect.CodeResourceExhausted.String(): true,
	malformed:                              true,
}

// malformed is the result of what was no call at all.
const malformed = "malformed"

// refusedByProtocol is the code of a request that was refused before it became a call.
func refusedByProtocol(answer *watchedWriter) (code, reason string) {
	if status := grpcStatus(answer.Header()); status != "" {
		if n, err := strconv.Atoi(status); err == nil && n != 0 {
			return protocolCode(connect.Code(n)), "refused before it was a call"
		}
		return "", ""
	}
	switch answer.code {
	case http.StatusRequestEntityTooLarge, http.StatusTooManyRequests:
		return connect.CodeResourceExhausted.String(), "the request is too large"
	case http.StatusBadRequest, http.StatusUnsupportedMediaType:
		return malformed, "the request could not be read"
	}
	return "", ""
}

func protocolCode(code connect.Code) string {
	switch code {
	case connect.CodeInvalidArgument, connect.CodeInternal, connect.CodeUnknown:
		return malformed
	}
	return code.String()
}

// shortened cuts a text that strangers may have written.
func shortened(s string) string {
	const most = 512
	if len(s) > most {
		s = s[:most] + "..."
	}
	return s
}

func (a *auditor) add(e trust.AuditEntry) {
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

// take empties the queue.
func (a *auditor) take() []trust.AuditEntry {
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

// writeAudit logs and stores what was audited until ctx ends, and then the rest.
func (m *Manager) writeAudit(ctx context.Context) error {
	pruned := time.Time{}
	for {
		select {
		case <-m.audit.wake:
		case <-ctx.Done():
			m.flushAudit(context.WithoutCancel(ctx))
			return nil
		}
		m.flushAudit(ctx)
		if time.Since(pruned) > pruneEvery {
			pruned = time.Now()
			if err := m.store.PruneAudit(ctx); err != nil {
				m.log.Warn("can't prune the audit log", "err", err)
			}
		}
		select {
		case <-time.After(auditPause):
		case <-ctx.Done():
		}
	}
}

func (m *Manager) flushAudit(ctx context.Context) {
	entries := m.audit.take()
	for _, e := range entries {
		if e.Refused {
			m.log.Warn("audit: refused", "identity", e.Identity, "from", e.From, "procedure", e.Procedure, "subject", e.Subject,
				"result", e.Result, "reason", e.Reason)
			continue
		}
		m.log.Info("audit: changed", "identity", e.Identity, "from", e.From, "procedure", e.Procedure, "subject", e.Subject)
	}
	if len(entries) == 0 {
		return
	}
	if err := m.store.AppendAudit(ctx, entries); err != nil {
		m.log.Warn("can't store the audit log, it stands in this log only", "err", err)
	}
}
