package entries

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/switchd/told"
	"github.com/weirlb/weir/internal/wake"
	"github.com/weirlb/weir/internal/wire"
)

// AuditInterval is how often the switch is read without a reason.
const AuditInterval = 10 * time.Second

// maxAge is how old what was read may be: three audits.
const maxAge = 3 * AuditInterval

// Log keeps what is told over restarts.
type Log interface {
	Append(m *weirv1.SyncSwitchResponse, whole func() *weirv1.SyncSwitchResponse) error
	Heard(now time.Time) error
}

// Config configures a Controller.
type Config struct {
	Driver           hardware.Driver
	Source4, Source6 netip.Addr     // of the outer headers; a family without one is not encapsulated in
	VIPs             []netip.Prefix // that VIPs must lie in
	TIPs             []netip.Prefix // that TIPs must lie in
	Announceable     func(vip netip.Addr) error
	// Announce makes the VIPs all that routers are told of.
	Announce func([]netip.Addr) error
	// Lead is the time between the withdrawal of a VIP and the removal of its entry.
	Lead time.Duration
	// Lease is how long VIPs stay announced when no manager is heard.
	Lease time.Duration
	Told  Log
	// Changed says that a report is due.
	Changed func()
	Log     *slog.Logger
}

// failure is why the switch does not hold what it is to hold.
type failure struct {
	refusal hardware.Refusal
	next    time.Time     // of another attempt
	wait    time.Duration // before it
}

// Controller keeps a switch's entries.
type Controller struct {
	config Config
	busy   chan struct{} // a call of the driver is under way
	wake   wake.Signal
	Took   *prometheus.HistogramVec // time of the driver to program an entry

	mu          sync.Mutex
	told        map[netip.Addr]wire.SwitchEntry
	generation  model.Generation // that told is of
	cluster     uint64
	epoch       uint64
	running     model.Generation // that the switch is at, but for the failures
	snapshot    bool             // one came in this process
	heard       time.Time        // the manager
	noted       time.Time        // that it was heard, in the log
	held        map[netip.Addr]hardware.Entry
	read        time.Time // when held was read; zero: never
	others      disturbance
	unreachable unreachable
	good        map[netip.Addr]hardware.Entry // what the switch last took and was read back as
	failures    map[netip.Addr]failure
	leaving     map[netip.Addr]time.Time // when entries nobody wants may be removed
	announced   map[netip.Addr]bool
	stopped     bool // nothing is announced any more
	boot        string
	trouble     failure // of the switch as a whole; no wait: there is none
	differences uint64
	reboots     uint64
	keeping     error // why what is told is not kept
	announcing  error
	able        hardware.Capabilities
}

// New returns a controller that goes on from what was told, and when. Start and Run make it so.
func New(config Config, messages []*weirv1.SyncSwitchResponse, heard time.Time) (*Controller, error) {
	if now := time.Now(); heard.After(now) { // the clock was set back
		heard = now
	}
	c := &Controller{
		config: config, busy: make(chan struct{}, 1), wake: wake.New(),
		Took: NewDurations(),
		told: map[netip.Addr]wire.SwitchEntry{}, heard: heard, noted: heard, held: map[netip.Addr]hardware.Entry{},
		good: map[netip.Addr]hardware.Entry{}, failures: map[netip.Addr]failure{}, leaving: map[netip.Addr]time.Time{}, announced: map[netip.Addr]bool{},
	}
	for _, m := range messages {
		next, err := told.Merge(c.told, m)
		if err != nil {
			c.told, c.generation = map[netip.Addr]wire.SwitchEntry{}, 0 // what was told before it is not what was told last
			return c, fmt.Errorf("read what the manager last told: %w", err)
		}
		c.told, c.generation, c.cluster, c.epoch = next, model.Generation(m.GetGeneration()), m.GetCluster(), m.GetEpoch()
	}
	return c, nil
}

// Apply takes over a message of the manager. What it withdraws is withdrawn when Apply returns.
func (c *Controller) Apply(m *weirv1.SyncSwitchResponse) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	next, err := told.Merge(c.told, m)
	if err != nil {
		return err
	}
	err = c.config.Told.Append(m, func() *weirv1.SyncSwitchResponse { return told.Whole(next, m) })
	if err != nil && c.keeping == nil {
		c.config.Log.Error("after a restart nothing is announced before a manager is reached", "err", err)
	}
	c.keeping = err
	for vip, e := range next { // what is told anew is tried anew
		if before, there := c.told[vip]; !there || before.Inner != e.Inner || !slices.Equal(before.Members, e.Members) || !slices.Equal(before.Sources, e.Sources) {
			delete(c.failures, vip)
		}
	}
	c.told, c.generation, c.cluster, c.epoch = next, model.Generation(m.GetGeneration()), m.GetCluster(), m.GetEpoch()
	c.snapshot = c.snapshot || m.GetSnapshot()
	c.hear(time.Now())
	c.announce(time.Now(), false)
	c.wake.Set()
	return nil
}

// Heard says that a manager has answered.
func (c *Controller) Heard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	over := c.leaseOver(time.Now())
	c.hear(time.Now())
	if over {
		c.wake.Set()
	}
}

// hearEvery is how often the log is told.
const hearEvery = 10 * time.Second

func (c *Controller) hear(now time.Time) {
	if c.heard = now; now.Sub(c.noted).Abs() < hearEvery {
		return
	}
	c.noted = now
	if err := c.config.Told.Heard(now); err != nil {
		c.config.Log.Debug("note when the manager was heard", "err", err)
	}
}

// leaseOver says whether no manager was heard for too long. A clock that was set back ends no lease.
func (c *Controller) leaseOver(now time.Time) bool { return now.Sub(c.heard) > c.config.Lease }

// Stop withdraws all VIPs for the rest of the process.
func (c *Controller) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	c.announce(time.Now(), true)
	return c.announcing
}

// announce computes what routers are told. Without more, nothing new is: steps have a pace, the manager's messages have none.
// The lock is held.
func (c *Controller) announce(now time.Time, more bool) {
	next := map[netip.Addr]bool{}
	for vip := range c.told {
		if (more || c.announced[vip]) && c.announceable(vip, now) {
			next[vip] = true
		}
	}
	for vip := range c.announced {
		if !next[vip] { // its entry stays for a while
			c.leaving[vip] = now.Add(c.config.Lead)
		}
	}
	for vip := range next {
		delete(c.leaving, vip)
	}
	if maps.Equal(next, c.announced) && c.announcing == nil {
		return
	}
	c.announced = next
	c.announcing = c.config.Announce(slices.SortedFunc(maps.Keys(next), netip.Addr.Compare))
	c.config.Changed()
}

func (c *Controller) announceable(vip netip.Addr, now time.Time) bool {
	held, there := c.held[vip]
	switch {
	case c.stopped, c.leaseOver(now), now.Sub(c.read) > maxAge:
		return false
	case !there, !c.told[vip].Announce, !held.Equal(c.good[vip]), c.unreachable.all(c.told[vip]):
		return false
	case held.Equal(c.entry(vip)):
		return true
	case held.Inner.IsValid() && held.Inner == c.told[vip].Inner: // a TIP: others send to it until the manager has them stop
		return true
	}
	_, failed := c.failures[vip]
	return !failed && c.trouble.wait == 0
}

// entry is what the switch is to hold for a VIP. One without weights gives each member the same. Members that it has no route to
// are left out while there are others, whose hosts hand on what is not theirs.
func (c *Controller) entry(vip netip.Addr) hardware.Entry {
	told := c.told[vip]
	e := hardware.Entry{VIP: vip, Inner: told.Inner, Sources: told.Sources, Source: c.config.Source6}
	without := !c.unreachable.all(told)
	for _, m := range told.Members {
		if m.Tunnel.Is4() {
			e.Source = c.config.Source4
		}
		if without && c.unreachable[m.Tunnel] {
			continue
		}
		if c.able.Driver != "" && !c.able.Weights {
			m.Entries = 1
		}
		e.Members = append(e.Members, hardware.Member{Tunnel: m.Tunnel, Entries: m.Entries})
	}
	return e
}

// check refuses what this switch is not to hold, whoever tells it.
func (c Config) check(e hardware.Entry) error {
	inside := func(a netip.Addr, prefixes []netip.Prefix) bool {
		return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	vip := e.VIP
	refuse := func(format string, args ...any) error {
		return &hardware.Refusal{VIP: e.VIP, Reason: fmt.Sprintf(format, args...)}
	}
	if e.Inner.IsValid() {
		if vip = e.Inner; !inside(e.VIP, c.TIPs) {
			return refuse("it does not lie in --tip-prefixes of this switch")
		}
	}
	if !inside(vip, c.VIPs) {
		return refuse("it does not lie in --vip-prefixes of this switch")
	}
	if err := c.Announceable(e.VIP); err != nil {
		return refuse("%v", err)
	}
	if !e.Source.IsValid() {
		return refuse("this switch has no outer source of the family of the tunnels: set --source4 or --source6")
	}
	for _, m := range e.Members {
		if inside(m.Tunnel, c.VIPs) {
			return refuse("tunnel %s lies in --vip-prefixes: packets would come back", m.Tunnel)
		}
		if e.Inner.IsValid() && inside(m.Tunnel, c.TIPs) {
			return refuse("tunnel %s lies in --tip-prefixes: packets would come back, from this switch", m.Tunnel)
		}
	}
	return e.Validate()
}

// Run keeps the switch until ctx ends. Start comes before.
func (c *Controller) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { watch(ctx, c) })
	watching.Go(func() { watchRoutes(ctx, c) })
	for {
		next := c.step(ctx)
		wake.After(ctx, minPause)
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		case <-c.wake:
			timer.Stop()
		}
	}
}

// asRefusal writes any failure as a refusal.
func asRefusal(vip netip.Addr, err error) hardware.Refusal {
	var refusal *hardware.Refusal
	if errors.As(err, &refusal) {
		return *refusal
	}
	return hardware.Refusal{VIP: vip, Reason: err.Error()}
}
