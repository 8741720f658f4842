package overlay

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/weirlb/weir/internal/datapath/overlay"
	"github.com/weirlb/weir/internal/netlink"
)

// Intervals of Run, and how many sessions are ended in one.
const (
	sweepEvery  = time.Second
	flowsEvery  = 5  // sweeps
	socketEvery = 10 // likewise
	countEvery  = 60 // likewise
	cleanMost   = 20000
)

// state is what the last sweeps found.
type state struct {
	sessions overlay.Report
	flows    int
	ports    int
	ended    map[overlay.End]uint64
	sweeps   int
	syns     syns
}

// Run sweeps sessions and flows until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			c.sweep()
		}
	}
}

// sweep does what is due. A failure is a warning until it is over.
func (c *Controller) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.datapath == nil {
		return
	}
	changed, err := c.followInterfaces()
	c.note("interfaces", err)
	over := len(c.detached.attachments) > 0 && !time.Now().Before(c.until)
	if c.host != nil && (changed || over) {
		c.note("program", c.program(*c.host))
	}
	c.note("sweep", c.sweepSessions(overlay.Now()))
	c.moves.follow(c.datapath, time.Now())
	if c.state.sweeps%flowsEvery == 0 {
		left, err := c.datapath.SweepFlows(overlay.Now())
		c.state.flows = left
		c.note("flows", err)
		if c.heard {
			c.note("clock", c.datapath.SetSYNSecrets(c.secrets)) // the clock may have been set
		}
	}
	if c.heard && c.state.sweeps%socketEvery == 0 {
		c.note("sockets", keepSockets(c.wanted.tunnels()))
	}
	if c.state.sweeps++; c.state.sweeps%countEvery == 0 {
		c.datapath.Recount()
	}
	if found := c.state.sessions; c.heard && !c.wanted.any() && len(c.detached.attachments) == 0 && found.Open+found.HalfOpen+found.Over == 0 {
		if err := c.unload(); err != nil {
			c.config.Log.Error("programs of virtual networks are not removed", "err", err)
			return
		}
		c.config.Log.Info("programs of virtual networks are removed: the host has to do with none")
	}
}

// note keeps or takes back the warning of a part.
func (c *Controller) note(of string, err error) {
	if err == nil {
		delete(c.warnings, of)
		return
	}
	if len(c.warnings[of]) == 0 || c.warnings[of][0] != err.Error() {
		c.config.Log.Warn("virtual networks", "err", err)
	}
	c.warnings[of] = []string{err.Error()}
}

// sweepSessions frees rows, ends sessions that are idle or serve nobody, and gives numbers free that no session has.
func (c *Controller) sweepSessions(now uint32) error {
	attachments, rules, counters := map[uint32]bool{}, map[uint32]bool{}, map[uint32]bool{}
	open, waiting := map[uint32]uint64{}, syns{}
	c.state.sessions = c.datapath.Sweep(now, func(s overlay.Session) {
		attachments[s.Attachment], rules[s.Rule], counters[s.Counters] = true, true, true
		if s.IsOpen() {
			open[s.Counters]++
		}
		waiting.add(s, now)
	})
	c.state.syns = waiting
	c.backends.open = open
	c.attachments.free(attachments)
	c.rules.free(rules)
	c.backends.free(counters)
	forbids := func(s overlay.Session) bool {
		b, known := c.served[s.Rule]
		return known && !b.Takes(s.Client.Addr())
	}
	ended, err := c.datapath.Clean(now, cleanMost, forbids, c.sender.Send)
	if c.state.ended == nil {
		c.state.ended = map[overlay.End]uint64{}
	}
	for why, n := range ended {
		c.state.ended[why] += uint64(n)
	}
	if err != nil {
		return fmt.Errorf("end sessions: %w", err)
	}
	return nil
}

// keepSockets has the kernel merge what comes in VXLAN.
func keepSockets(tunnels []netip.Addr) error {
	_, err := netlink.KeepVXLANSockets(tunnels)
	if err != nil {
		return fmt.Errorf("%w: packets of networks come one by one: is there another vxlan device on UDP port 4789 with other flags?", err)
	}
	return nil
}
