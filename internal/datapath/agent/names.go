package agent

import (
	"time"

	"github.com/weirlb/weir/internal/datapath/agent/fastpath"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/datapath/agent/snat"
)

// Names of what these take and return.
type (
	SessionReport     = session.Report
	State             = session.State
	Timeouts          = session.Timeouts
	VIPSessions       = session.VIPSessions
	TenantSessions    = session.TenantSessions
	EvacuatedSessions = session.EvacuatedSessions
	SNATReport        = session.SNATReport
	SNATTableUsage    = session.SNATTableUsage
	SNATRefusal       = session.SNATRefusal
	SNATUse           = snat.Use
	IdleRange         = snat.IdleRange
	Flow              = snat.Flow
	Notice            = snat.Notice

	FastpathConnection = fastpath.Entry
	FastpathState      = fastpath.State
	ControlMessage     = fastpath.ControlMessage
	ControlMessages    = fastpath.ControlMessages
)

// The states of Fastpath connections.
const (
	FastpathNone   = fastpath.None
	FastpathAccept = fastpath.Accept
	FastpathSend   = fastpath.Send
)

// Why SetFastpath leaves a connection as it is.
var (
	ErrFastpathUnknown   = fastpath.ErrUnknown
	ErrFastpathForbidden = fastpath.ErrForbidden
	ErrFastpathLocal     = fastpath.ErrLocal
	ErrFastpathUnnamed   = fastpath.ErrUnnamed
	ErrFastpathFull      = fastpath.ErrFull
)

// The kinds of notices.
const (
	NoticeQueued  = snat.NoticeQueued
	NoticeRefused = snat.NoticeRefused
	NoticeLow     = snat.NoticeLow
	NoticeFull    = snat.NoticeFull
)

// DefaultCookieTick is Config.CookieTick if that is 0: the tick of every host.
const DefaultCookieTick = session.DefaultCookieTick

// Sizes of source NAT that Config leaves 0.
const (
	DefaultMaxSNATFlows = snat.DefaultMaxFlows
	DefaultMaxQueued    = snat.DefaultMaxQueued // of one workload's packets that wait for a port
)

// ErrFlowGone is why a queued packet is not sent.
var ErrFlowGone = snat.ErrFlowGone

// Now is the clock that sessions are timed by: monotonic since boot, without suspends.
func Now() time.Duration { return session.Now() }

// DefaultTimeouts are those of RFC 5382, RFC 4787 and RFC 5508, where they speak of them.
func DefaultTimeouts() Timeouts { return session.DefaultTimeouts() }

// CookieBound is for how long a workload may be silent before its client takes its next segment for
// an old one (RFC 7323, section 5).
func CookieBound(tick time.Duration) time.Duration { return session.CookieBound(tick) }
