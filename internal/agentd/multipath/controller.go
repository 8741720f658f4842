package multipath

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	agentmultipath "github.com/weirlb/weir/internal/datapath/agent/multipath"
	"github.com/weirlb/weir/internal/multipath"
	"github.com/weirlb/weir/internal/telemetry"
)

const (
	// Interval is how often tokens are looked at.
	Interval = time.Second
	// maxTold bounds the messages of an interval. What is left waits for the next one.
	maxTold       = 20_000
	sweepInterval = 15 * time.Second
	retryAfter    = 10 * time.Second // a message that the kernel had no room for
	// askInterval is between two looks for tokens that nobody refreshes: each is asked about until somebody does, or it ends.
	askInterval = time.Minute
)

// Datapath is the data plane's part.
type Datapath interface {
	SweepMultipath() (agentmultipath.Report, error)
	OwnTokens() ([]agentmultipath.Own, error)
	StaleTokens() ([]agentmultipath.Stale, error)
	NoteName(own agentmultipath.Own) error
	HasTunnel(tunnel netip.Addr) bool
	HolderOf(name multipath.Name) (netip.Addr, error)
	MultipathEvents() (agentmultipath.Events, error)
}

// Config is what a Controller needs.
type Config struct {
	Log       *slog.Logger
	Datapath  Datapath
	Addresses []netip.Addr // of the host: for homes of another family than the tunnel's
	Send      func(from, to netip.Addr, datagram []byte) error
}

// Controller keeps tokens and tells them.
type Controller struct {
	c     Config
	told  map[multipath.Name]told
	asked int // how many of the stale tokens were asked about before those that are next

	mu     sync.Mutex
	report agentmultipath.Report // guarded by mu, as are the next two
	sent   uint64
	failed uint64
}

// told is when and where a token was told last.
type told struct {
	homes [2]netip.Addr
	due   time.Time
	seen  bool // in the present look
}

// New has told nothing yet.
func New(config Config) *Controller {
	return &Controller{c: config, told: map[multipath.Name]told{}}
}

// Run runs until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	ticker := time.NewTicker(Interval)
	defer ticker.Stop()
	var swept, asked time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			if now.Sub(swept) >= sweepInterval {
				c.sweep()
				swept = now
			}
			err := c.tell(now)
			if now.Sub(asked) >= askInterval {
				err = errors.Join(err, c.ask())
				asked = now
			}
			if err != nil {
				c.c.Log.Warn("can't tell tokens of subflows, retrying", "err", err)
			}
		}
	}
}

func (c *Controller) sweep() {
	report, err := c.c.Datapath.SweepMultipath()
	if err != nil {
		c.c.Log.Warn("can't sweep tokens of subflows, retrying", "err", err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if report.Unserved > c.report.Unserved {
		c.c.Log.Warn("no room for the homes of all endpoints with multipath: subflows of some are refused", "endpoints", report.Unserved)
	}
	c.report = report
}

// tell tells tokens that are due: those that are new since the last look, soon, for what the data plane sent may be lost; those
// whose homes changed; and all others now and then.
func (c *Controller) tell(now time.Time) error {
	all, err := c.c.Datapath.OwnTokens()
	if err != nil {
		return err
	}
	var failed error
	messages := 0
	for name, t := range c.told {
		t.seen = false
		c.told[name] = t
	}
	for _, own := range all {
		t, known := c.told[own.Name]
		if !known {
			t = told{homes: own.Homes, due: now.Add(multipath.RefreshFirst)}
		}
		if t.homes != own.Homes {
			t.due = now
		}
		if !t.due.After(now) && messages < maxTold && c.c.Datapath.HasTunnel(own.Tunnel) { // else its workload has moved
			sent, err := c.tellOne(own)
			messages += sent
			t.homes, t.due = own.Homes, now.Add(multipath.RefreshEvery)
			if err != nil {
				t.due = now.Add(retryAfter)
			}
			failed = cmp.Or(failed, err) // one says what is wrong
		}
		t.seen = true
		c.told[own.Name] = t
	}
	for name, t := range c.told {
		if !t.seen {
			delete(c.told, name)
		}
	}
	return failed
}

// tellOne tells a token to its homes, and returns the number of messages.
func (c *Controller) tellOne(own agentmultipath.Own) (sent int, failed error) {
	for i, home := range own.Homes {
		switch {
		case !home.IsValid():
			continue
		case c.c.Datapath.HasTunnel(home):
			failed = errors.Join(failed, c.c.Datapath.NoteName(own))
			continue
		}
		step := multipath.StepHome
		if i > 0 {
			step = multipath.StepHomeNext
		}
		failed = errors.Join(failed, c.send(own.Tunnel, home, multipath.Tell(own.Name, own.Tunnel, own.Client, step)))
		sent++
	}
	return sent, failed
}

// ask asks the hosts of tunnels whose tokens nobody refreshes: a workload that moved has taken its tunnel with it, and the host
// where it is now knows its connections by their clients.
func (c *Controller) ask() error {
	stale, err := c.c.Datapath.StaleTokens()
	if err != nil {
		return err
	}
	first := c.asked // they come in the same order each time
	for i := range min(len(stale), maxTold) {
		d := stale[(first+i)%len(stale)]
		c.asked = (first + i + 1) % len(stale)
		if !c.c.Datapath.HasTunnel(d.Tunnel) { // else the other home asks
			err = cmp.Or(err, c.send(d.From, d.Tunnel, multipath.Tell(d.Name, d.From, d.Client, multipath.StepHolder)))
		}
	}
	return err
}

// send sends a message from a tunnel of this host, or if that is of another family than where it goes to, from the host.
func (c *Controller) send(from, to netip.Addr, message []byte) error {
	if from.Is4() != to.Is4() {
		at := slices.IndexFunc(c.c.Addresses, func(a netip.Addr) bool { return a.Is4() == to.Is4() })
		if at < 0 {
			return nil
		}
		from = c.c.Addresses[at]
	}
	err := c.c.Send(from, to, message)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.sent++
	} else {
		c.failed++
	}
	return err
}

// Metrics are what a Controller tells.
var Metrics = []telemetry.Metric{
	{Name: "weir_agent_multipath_rows", Help: "Rows at the last sweep: tokens of own workloads (own), of any host's that this one keeps (names), subflows of other hosts that come by this one, where the client is there (joined), or of which a SYN alone was seen (unconfirmed).", Labels: []string{"table"}},
	{Name: "weir_agent_multipath_refused_total", Help: "Rows that VIPs did not get because they had their share, of all tables."},
	{Name: "weir_agent_multipath_told_total", Help: "Messages of the daemon about tokens, to homes that it told and hosts that it asked, by result.", Labels: []string{"result"}},
	{Name: "weir_agent_multipath_joins_total", Help: "SYNs that join a connection: of this host, where muxes brought them (own) or another host (brought); to a home of their token (asked); to the host of their connection (handed_on); dropped, for no host has it (unknown).", Labels: []string{"result"}},
	{Name: "weir_agent_multipath_segments_total", Help: "Segments without a cookie that went to the host of their subflow."},
	{Name: "weir_agent_multipath_announcements_removed_total", Help: "Segments of workloads that announced an address by Multipath TCP that clients were not told: any but the VIP."},
}

// Sample tells what the last sweep found. A nil Controller tells nothing.
func (c *Controller) Sample(to *telemetry.Sample) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	telemetry.Put(to, "weir_agent_multipath_rows", c.report.Tokens, "own")
	telemetry.Put(to, "weir_agent_multipath_rows", c.report.Names, "names")
	telemetry.Put(to, "weir_agent_multipath_rows", c.report.Joined, "joined")
	telemetry.Put(to, "weir_agent_multipath_rows", c.report.Unconfirmed, "unconfirmed")
	telemetry.Put(to, "weir_agent_multipath_refused_total", c.report.Refused)
	telemetry.Put(to, "weir_agent_multipath_told_total", c.sent, "sent")
	telemetry.Put(to, "weir_agent_multipath_told_total", c.failed, "failed")
	events, err := c.c.Datapath.MultipathEvents()
	if err != nil {
		to.Fail("weir_agent_multipath_joins_total", err)
		return
	}
	for result, n := range map[string]uint64{
		"own": events.Own, "brought": events.Brought, "asked": events.Asked, "handed_on": events.HandedOn, "unknown": events.Unknown,
	} {
		telemetry.Put(to, "weir_agent_multipath_joins_total", n, result)
	}
	telemetry.Put(to, "weir_agent_multipath_segments_total", events.Segments)
	telemetry.Put(to, "weir_agent_multipath_announcements_removed_total", events.Announcements)
}

// Report is what the manager is told; nil: no endpoint of this host has multipath. Of a nil Controller it is nil.
func (c *Controller) Report() (*weirv1.HostMultipath, error) {
	if c == nil {
		return nil, nil
	}
	c.mu.Lock()
	found := c.report
	c.mu.Unlock()
	if found.Endpoints == 0 {
		return nil, nil
	}
	events, err := c.c.Datapath.MultipathEvents()
	return &weirv1.HostMultipath{
		Connections: uint64(found.Tokens), Names: uint64(found.Names), Joined: uint64(found.Joined), Refused: found.Refused,
		Own: events.Own, Brought: events.Brought, Asked: events.Asked, HandedOn: events.HandedOn, Unknown: events.Unknown,
		Segments: events.Segments, Announcements: events.Announcements,
	}, err
}
