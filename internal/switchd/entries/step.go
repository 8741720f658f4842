package entries

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/hardware"
)

const (
	// minPause bounds how often the switch is looked at, whatever the manager tells.
	minPause = 20 * time.Millisecond
	// stepTime is how long a step programs before it reads back what it did.
	stepTime = time.Second
	// First and longest wait after a failure.
	retryFirst = time.Second
	retryMost  = time.Minute
)

// Start reads the switch, and announces what is as it was last told: nothing that is not.
func (c *Controller) Start(ctx context.Context) {
	readRoutes(ctx, c)
	c.look(ctx, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.told) > 0 && c.leaseOver(time.Now()) {
		c.config.Log.Warn("no manager was heard for too long: nothing is announced until one is")
	}
	c.config.Log.Info("adopted the switch's entries, and announce what is as it was told", "adopted", len(c.held), "vips", len(c.announced))
}

// step brings the switch nearer to what is told, and returns when there is more to do.
func (c *Controller) step(ctx context.Context) time.Time {
	if c.auditDue() && !c.look(ctx, nil) {
		return c.conclude()
	}
	remove, program := c.plan()
	until := time.Now().Add(stepTime)
	tried := map[netip.Addr]hardware.Entry{} // removed: the zero entry
	answers := true
	for _, vip := range remove {
		if answers = answers && c.remove(ctx, vip); answers {
			tried[vip] = hardware.Entry{}
		}
	}
	for _, e := range program {
		if !answers || time.Now().After(until) || ctx.Err() != nil {
			break
		}
		var took bool
		if took, answers = c.program(ctx, e); took {
			tried[e.VIP] = e
		}
	}
	if answers && len(tried) > 0 {
		c.look(ctx, tried)
	}
	return c.conclude()
}

// auditDue says whether the switch is to be read now. One that is in trouble is left alone for a while.
func (c *Controller) auditDue() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.trouble.wait > 0 {
		return !now.Before(c.trouble.next)
	}
	return now.Sub(c.read) >= AuditInterval || c.others.due(now)
}

// plan is what is to be removed, and what is to be programmed, that which is announced first.
func (c *Controller) plan() (remove []netip.Addr, program []hardware.Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.trouble.wait > 0 {
		return nil, nil
	}
	for vip := range c.held {
		if _, told := c.told[vip]; !told && c.snapshot && !now.Before(c.leaving[vip]) && !now.Before(c.failures[vip].next) {
			remove = append(remove, vip)
		}
	}
	if !c.snapshot && c.leaseOver(now) {
		return nil, nil // what was last told is too old to act on
	}
	for vip := range c.told {
		e := c.entry(vip)
		if c.held[vip].Equal(e) || now.Before(c.failures[vip].next) {
			continue
		}
		if err := c.config.check(e); err != nil {
			c.fail(vip, err, now)
			continue
		}
		program = append(program, e)
	}
	slices.SortFunc(remove, netip.Addr.Compare)
	slices.SortFunc(program, func(a, b hardware.Entry) int {
		if first := c.announced[a.VIP]; first != c.announced[b.VIP] {
			if first {
				return -1
			}
			return 1
		}
		return a.VIP.Compare(b.VIP)
	})
	return remove, program
}

// fail notes that the switch does not hold what it is to hold. The lock is held.
func (c *Controller) fail(vip netip.Addr, err error, now time.Time) {
	before, again := c.failures[vip]
	f := failure{refusal: asRefusal(vip, err), wait: min(max(2*before.wait, retryFirst), retryMost)}
	f.next = now.Add(f.wait)
	c.failures[vip] = f
	if !again || before.refusal != f.refusal {
		c.config.Log.Warn("the switch does not hold what it is to hold", "vip", vip.String(), "err", err)
	}
	if c.announced[vip] {
		c.announce(now, true)
	}
}

// inTrouble notes that the switch as a whole does not do what its driver asks.
func (c *Controller) inTrouble(ctx context.Context, what string, err error) {
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	t := failure{wait: min(max(2*c.trouble.wait, retryFirst), retryMost)}
	t.refusal.Reason = fmt.Sprintf("HardwareStuck: %s: %v", what, err)
	t.next = now.Add(t.wait)
	if c.trouble.refusal != t.refusal {
		c.config.Log.Error("the switch is in trouble: what it is to change is withdrawn", "action", what, "err", err)
	}
	c.trouble = t
	c.announce(now, true)
	c.config.Changed()
}

// program has the switch hold an entry. took says that it says that it does, answers whether it is worth to ask for more.
func (c *Controller) program(ctx context.Context, e hardware.Entry) (took, answers bool) {
	began := time.Now()
	_, err := call(ctx, c.busy, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.config.Driver.Program(ctx, e.Clone())
	})
	c.Took.WithLabelValues(result(err)).Observe(time.Since(began).Seconds())
	switch {
	case err == nil:
		return true, true
	case errors.Is(err, errStuck):
		c.inTrouble(ctx, "program "+e.VIP.String(), err)
		return false, false
	case ctx.Err() != nil:
		return false, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail(e.VIP, err, time.Now())
	return false, true
}

// results of programming an entry, as a metric's label.
func result(err error) string {
	var refusal *hardware.Refusal
	switch {
	case err == nil:
		return "taken"
	case errors.As(err, &refusal):
		return "refused"
	case errors.Is(err, errStuck):
		return "stuck"
	}
	return "failed"
}

func (c *Controller) remove(ctx context.Context, vip netip.Addr) (answers bool) {
	_, err := call(ctx, c.busy, func(ctx context.Context) (struct{}, error) { return struct{}{}, c.config.Driver.Remove(ctx, vip) })
	if errors.Is(err, errStuck) || ctx.Err() != nil {
		c.inTrouble(ctx, "remove "+vip.String(), err)
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.fail(vip, fmt.Errorf("remove the entry: %w", err), time.Now())
		return true
	}
	return true
}

// conclude says which generation the switch is at, and returns when there is more to do.
func (c *Controller) conclude() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.announce(now, true)
	next := c.read.Add(AuditInterval)
	sooner := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	if c.others.is {
		sooner(c.others.calm)
	}
	if c.trouble.wait > 0 {
		next = c.trouble.next
	}
	if len(c.announced) > 0 {
		sooner(c.heard.Add(c.config.Lease + time.Millisecond))
		sooner(c.read.Add(maxAge + time.Millisecond))
	}
	settled := c.snapshot
	pending := func(vip netip.Addr, due time.Time) {
		f, failed := c.failures[vip]
		settled = settled && (failed || c.trouble.wait > 0)
		if c.trouble.wait == 0 {
			sooner(later(due, f.next))
		}
	}
	for vip := range c.told {
		if !c.held[vip].Equal(c.entry(vip)) && (c.snapshot || !c.leaseOver(now)) {
			pending(vip, now)
		}
	}
	for vip := range c.held {
		if _, told := c.told[vip]; !told && c.snapshot {
			pending(vip, c.leaving[vip])
		}
	}
	gone := func(vip netip.Addr) bool {
		_, told := c.told[vip]
		_, held := c.held[vip]
		return !told && !held
	}
	maps.DeleteFunc(c.failures, func(vip netip.Addr, _ failure) bool { return gone(vip) })
	maps.DeleteFunc(c.leaving, func(vip netip.Addr, _ time.Time) bool { return gone(vip) })
	if settled && c.running != c.generation {
		c.running = c.generation
		c.config.Changed()
	}
	return next
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
