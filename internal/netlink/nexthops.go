package netlink

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	vnl "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/wake"
)

// Config of NextHops.
type Config struct {
	Interface string
	// Changed is called from Run, with every new state. It must not call back.
	Changed func(State)
	Log     *slog.Logger
}

// State is what is known of the destinations. One that is in neither map is being resolved.
type State struct {
	NextHops map[netip.Addr]model.NextHop
	Problems map[netip.Addr]string // why there is no next hop: "no route to 10.2.1.2"
	Link     string                // what is wrong with the interface, or empty
	MTU      int                   // of the interface
	MAC      [6]byte               // likewise
}

func (s State) equal(other State) bool {
	return s.Link == other.Link && s.MTU == other.MTU && s.MAC == other.MAC &&
		maps.Equal(s.NextHops, other.NextHops) && maps.Equal(s.Problems, other.Problems)
}

// Times that shape how changes of the kernel's tables are followed.
const (
	lossGrace   = 2 * time.Second  // a lost next hop is kept for this long: most come back
	lookEvery   = time.Second      // neighbours that are stale or missing are asked for again
	resyncEvery = 30 * time.Second // all tables are read anew
)

// NextHops finds and follows the next hops to a set of destinations, out of one interface.
type NextHops struct {
	config   Config
	requests *vnl.Handle
	events   *nl.NetlinkSocket
	wake     wake.Signal // the destinations were set

	mu     sync.Mutex
	wanted []netip.Addr

	// Used by Run only.
	link         Interface
	linkProblem  string
	neighbors    *neighbors
	destinations map[netip.Addr]*destination
	last         *State // that Changed was called with
}

// destination is what is known of one.
type destination struct {
	gateways []netip.Addr // best first; none: problem says why
	problem  string
	hop      model.NextHop
	good     time.Time // when hop was last right, or the destination was first asked for
}

// New makes a NextHops for an interface that exists, in the network namespace of the calling thread.
func New(config Config) (*NextHops, error) {
	requests, err := vnl.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	link, err := findInterface(requests, config.Interface)
	if err != nil {
		requests.Close()
		return nil, err
	}
	events, err := subscribe(unix.RTNLGRP_NEIGH)
	if err != nil {
		requests.Close()
		return nil, err
	}
	return &NextHops{
		config: config, requests: requests, events: events, wake: wake.New(), link: link,
		neighbors: newNeighbors(requests, link.Index), destinations: map[netip.Addr]*destination{},
	}, nil
}

// SetDestinations replaces the set of destinations.
func (h *NextHops) SetDestinations(destinations []netip.Addr) {
	h.mu.Lock()
	h.wanted = slices.Clone(destinations)
	h.mu.Unlock()
	h.wake.Set()
}

// Run follows the tables until ctx is done. It can run once.
func (h *NextHops) Run(ctx context.Context) error {
	defer h.requests.Close()
	changes := make(chan tables)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer h.events.Close()
	reader.Go(func() { receive(ctx, h.events, changes) })

	look, resync := time.NewTicker(lookEvery), time.NewTicker(resyncEvery)
	defer look.Stop()
	defer resync.Stop()
	changed := allTables // since they were last read
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.wake:
			changed |= routes
			due.Reset(0)
		case t := <-changes:
			if changed == 0 {
				due.Reset(settle)
			}
			changed |= t
		case <-resync.C:
			changed = allTables
			due.Reset(0)
		case <-look.C:
			changed |= neighborsTable
			due.Reset(0)
		case now := <-due.C:
			if err := h.read(changed, now); err != nil {
				h.config.Log.Warn("follow the kernel's tables", "err", err)
			}
			changed = 0
			h.evaluate(now)
		}
	}
}

// read reads the tables that have changed.
func (h *NextHops) read(changed tables, now time.Time) error {
	if changed&links != 0 {
		h.readLink()
	}
	if changed&(links|routes) != 0 {
		h.readRoutes(now)
	}
	if changed&(links|neighborsTable) != 0 {
		return h.neighbors.read()
	}
	return nil
}

func (h *NextHops) readLink() {
	link, err := findInterface(h.requests, h.config.Interface)
	switch {
	case err != nil:
		h.linkProblem = err.Error()
		return
	case link.Index != h.link.Index:
		h.linkProblem = fmt.Sprintf("interface %s was made anew: restart this program", link.Name)
		return
	case !link.Up:
		h.linkProblem = fmt.Sprintf("interface %s is down", link.Name)
	default:
		h.linkProblem = ""
	}
	h.link = link
}

func (h *NextHops) readRoutes(now time.Time) {
	h.mu.Lock()
	wanted := h.wanted
	h.mu.Unlock()
	known := make(map[netip.Addr]*destination, len(wanted))
	for _, addr := range wanted {
		d := h.destinations[addr]
		if d == nil {
			d = &destination{good: now}
		}
		d.gateways, d.problem = lookUp(h.requests, addr, h.link)
		known[addr] = d
	}
	h.destinations = known
}

// evaluate brings routes and neighbours together, and tells what has changed.
func (h *NextHops) evaluate(now time.Time) {
	state := State{
		NextHops: make(map[netip.Addr]model.NextHop, len(h.destinations)),
		Problems: map[netip.Addr]string{},
		Link:     h.linkProblem,
		MTU:      h.link.MTU,
		MAC:      h.link.MAC,
	}
	for addr, d := range h.destinations {
		hop, problem := h.hop(addr, d, now)
		switch {
		case hop.Resolved():
			d.hop, d.good = hop, now
		case now.Sub(d.good) >= lossGrace:
			d.hop = model.NextHop{}
			state.Problems[addr] = problem
		}
		if d.hop.Resolved() {
			state.NextHops[addr] = d.hop
		}
	}
	if h.last == nil || !h.last.equal(state) {
		h.last = &state
		h.config.Changed(state)
	}
}

// hop chooses the best gateway that answers, and keeps all of them resolved.
func (h *NextHops) hop(addr netip.Addr, d *destination, now time.Time) (model.NextHop, string) {
	if len(d.gateways) == 0 {
		return model.NextHop{}, d.problem
	}
	var chosen model.NextHop
	for _, g := range d.gateways {
		if err := h.neighbors.resolve(g, now); err != nil {
			h.config.Log.Debug("have the kernel resolve a neighbour", "neighbor", g.String(), "err", err)
		}
		if n := h.neighbors.entries[g]; n.usable() && !chosen.Resolved() {
			chosen = model.NextHop{Source: h.link.MAC, Destination: n.mac}
		}
	}
	switch {
	case chosen.Resolved():
		return chosen, ""
	case d.gateways[0] == addr:
		return chosen, fmt.Sprintf("%s does not answer on %s", addr, h.link.Name)
	}
	return chosen, fmt.Sprintf("gateway %s to %s does not answer on %s", d.gateways[0], addr, h.link.Name)
}
