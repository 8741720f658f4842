package mptcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirlb/weir/internal/lab/netlab"
)

// dialing is how many connections a group opens at a time.
const dialing = 32

// dialInterval is how long after a connection the next one is opened. Of all SYNs that come of this, joins of three more paths
// among them, muxes make no flood, of which they would answer some with SYN cookies: such a connection is plain TCP.
const dialInterval = 2500 * time.Microsecond

// Group is connections that make requests, one each interval, until it is closed.
type Group struct {
	conns   []*Conn
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	broken map[*Conn]error
}

// Open opens so many connections from each client to each VIP.
func Open(ctx context.Context, lab *netlab.Lab, each int, interval time.Duration, clients []string, vips ...netip.Addr) (*Group, error) {
	g := &Group{broken: map[*Conn]error{}}
	var opening errgroup.Group
	opening.SetLimit(dialing)
	next := time.NewTicker(dialInterval)
	defer next.Stop()
	for _, client := range clients {
		ns, err := lab.NS(client)
		if err != nil {
			return nil, err
		}
		for range each {
			for _, vip := range vips {
				<-next.C
				opening.Go(func() error {
					c, err := Dial(ns, netip.AddrPortFrom(vip, Port))
					if err != nil {
						return fmt.Errorf("from %s: %w", client, err)
					}
					g.mu.Lock()
					defer g.mu.Unlock()
					g.conns = append(g.conns, c)
					return nil
				})
			}
		}
	}
	err := opening.Wait()
	ctx, g.stop = context.WithCancel(ctx)
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	for i, c := range g.conns {
		g.running.Go(func() { g.use(ctx, c, interval, time.Duration(i)*interval/time.Duration(len(g.conns))) })
	}
	return g, nil
}

// use makes requests on a connection until it breaks.
func (g *Group) use(ctx context.Context, c *Conn, interval, after time.Duration) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(after):
		}
		if err := c.Ask(); err != nil {
			g.mu.Lock()
			g.broken[c] = err
			g.mu.Unlock()
			return
		}
		after = interval
	}
}

// Close closes all connections.
func (g *Group) Close() error {
	g.stop()
	var errs []error
	for _, c := range g.conns {
		errs = append(errs, c.Close()) // also under a request, which a dead backend would not answer
	}
	g.running.Wait()
	return errors.Join(errs...)
}

// Len is how many connections were opened.
func (g *Group) Len() int { return len(g.conns) }

// Backends are those that have connections.
func (g *Group) Backends() map[string]int {
	all := map[string]int{}
	for _, c := range g.conns {
		all[c.Backend]++
	}
	return all
}

// View is the established subflows of connections that are open.
type View map[*Conn][]Subflow

// View looks at all connections that have not broken.
func (g *Group) View() (View, error) {
	v := View{}
	for _, c := range g.conns {
		if g.hasBroken(c) != nil {
			continue
		}
		all, err := Subflows(c.TCPConn)
		if err != nil {
			return nil, err
		}
		v[c] = slices.DeleteFunc(all, func(s Subflow) bool { return !s.Established })
	}
	return v, nil
}

func (g *Group) hasBroken(c *Conn) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.broken[c]
}

// Without is the view without connections of some backends.
func (v View) Without(backends ...string) View {
	left := maps.Clone(v)
	maps.DeleteFunc(left, func(c *Conn, _ []Subflow) bool { return slices.Contains(backends, c.Backend) })
	return left
}

// Joined is how many connections have a subflow from one of the addresses.
func (v View) Joined(from ...netip.Addr) int { return len(v) - len(v.NotJoined(from...)) }

// NotJoined are those that have none.
func (v View) NotJoined(from ...netip.Addr) (all []*Conn) {
	for c, subflows := range v {
		if !slices.ContainsFunc(subflows, func(s Subflow) bool { return slices.Contains(from, s.Local.Addr()) }) {
			all = append(all, c)
		}
	}
	return all
}

// find returns a subflow by its addresses.
func (v View) find(c *Conn, s Subflow) (Subflow, bool) {
	i := slices.IndexFunc(v[c], func(o Subflow) bool { return o.Local == s.Local && o.Remote == s.Remote })
	if i < 0 {
		return Subflow{}, false
	}
	return v[c][i], true
}

// Loss is what is there no more. Silent subflows stand, and have got no segment since.
type Loss struct {
	Connections, Subflows, Silent int
	Why                           []string // some of each
}

// reasons bounds what a Loss tells.
const reasons = 5

func (l *Loss) tell(format string, args ...any) {
	if len(l.Why) < reasons {
		l.Why = append(l.Why, fmt.Sprintf(format, args...))
	}
}

// Lost says what was lost since an earlier view, of connections whose backends are not dead.
func (g *Group) Lost(before View, dead ...string) (loss Loss, err error) {
	now, err := g.View()
	if err != nil {
		return loss, err
	}
	for c, subflows := range before {
		if slices.Contains(dead, c.Backend) {
			continue
		}
		if err := g.hasBroken(c); err != nil {
			loss.Connections++
			loss.tell("%s to %s at %s: %v", c.LocalAddr(), c.RemoteAddr(), c.Backend, err)
			continue
		}
		for _, was := range subflows {
			is, found := now.find(c, was)
			switch {
			case !found:
				loss.Subflows++
				loss.tell("subflow %s to %s at %s: gone", was.Local, was.Remote, c.Backend)
			case is.Segments == was.Segments:
				loss.Silent++
				loss.tell("subflow %s to %s at %s: got no segment", was.Local, was.Remote, c.Backend)
			}
		}
	}
	return loss, nil
}

// WaitLost is Lost as soon as all subflows that stand have got a segment since, or after the bound, when those that have not
// are lost too.
func (g *Group) WaitLost(ctx context.Context, bound time.Duration, before View, dead ...string) (loss Loss, err error) {
	_ = netlab.Poll(ctx, bound, func() error {
		if loss, err = g.Lost(before, dead...); err == nil && loss.Silent > 0 {
			return fmt.Errorf("%d subflows are silent", loss.Silent)
		}
		return nil
	})
	loss.Subflows, loss.Silent = loss.Subflows+loss.Silent, 0
	return loss, errors.Join(err, ctx.Err())
}

// WaitJoined waits until so many connections, of backends that are not dead, have a subflow from one of the addresses, or the
// bound is over, and returns how many have.
func (g *Group) WaitJoined(ctx context.Context, bound time.Duration, want int, dead []string, from ...netip.Addr) (joined int, err error) {
	_ = netlab.Poll(ctx, bound, func() error {
		view, failed := g.View()
		if err = failed; err != nil {
			return nil
		}
		if joined = view.Without(dead...).Joined(from...); joined < want {
			return fmt.Errorf("%d of %d have joined", joined, want)
		}
		return nil
	})
	return joined, errors.Join(err, ctx.Err())
}
