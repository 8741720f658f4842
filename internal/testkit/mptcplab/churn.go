package mptcplab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/mptcp"
	"github.com/weirlb/weir/internal/lab/netlab"
)

// Scenario is something that happens to a lab under connections.
type Scenario struct {
	Name string
	// Do does it, and returns the backends whose connections may be lost: none, but of those that died or were removed.
	Do func(context.Context, *World) (dead []string, err error)
	// Undo has the lab be as it was; nil: it stays.
	Undo func(context.Context, *World) error
	// Short scenarios are cheap.
	Short bool
	// Modern clients alone: segments without timestamps go by the host of their subflow's bucket, also of a connection that
	// another has. When that one's backend is gone, so is the subflow.
	Modern bool
}

// Outcome is what came of a scenario.
type Outcome struct {
	Name        string   `json:"name"`
	Connections int      `json:"connections"` // of backends that are not dead
	Lost        int      `json:"connections_lost"`
	Subflows    int      `json:"subflows"`
	SubflowLost int      `json:"subflows_lost"`
	Joined      int      `json:"joined"` // of the connections, from one more address, behind the event
	Refused     int      `json:"joins_refused"`
	Seconds     float64  `json:"seconds"`
	Why         []string `json:"why,omitempty"`
}

// Right says that nothing was lost and all have joined.
func (o Outcome) Right() bool {
	return o.Lost == 0 && o.SubflowLost == 0 && o.Refused == 0 && o.Connections > 0 && o.Joined == o.Connections
}

// joinWait bounds how long joins take behind an event: what the client sends again after 1, 3 and 7 s.
const joinWait = 20 * time.Second

// Run opens connections, so many from each client to each VIP, and puts them through a scenario. All have joined from path 2;
// path 3 is for joins behind it.
func (w *World) Run(ctx context.Context, s Scenario, each int) (o Outcome, err error) {
	clients := []string{Modern, NoTimestamp}
	if s.Modern {
		clients = clients[:1]
	}
	began := time.Now()
	defer func() { o.Seconds = time.Since(began).Seconds() }()
	g, err := w.Open(ctx, each, clients...)
	if err != nil {
		return o, fmt.Errorf("%s: %w", s.Name, err)
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	o.Name = s.Name
	if err := w.happen(ctx, s, g, &o); err != nil {
		return o, fmt.Errorf("%s: %w", s.Name, err)
	}
	if s.Undo != nil {
		if err := s.Undo(ctx, w); err != nil {
			return o, fmt.Errorf("undo %s: %w", s.Name, err)
		}
		return o, w.settle(ctx)
	}
	return o, nil
}

func (w *World) happen(ctx context.Context, s Scenario, g *mptcp.Group, o *Outcome) error {
	before, err := g.View()
	if err != nil {
		return err
	}
	refused, err := w.Refused()
	if err != nil {
		return err
	}
	dead, err := s.Do(ctx, w)
	if err != nil {
		return err
	}
	if err := o.lose(ctx, g, before, dead); err != nil {
		return err
	}
	if err := w.joinFrom(ctx, o, g, dead); err != nil {
		return err
	}
	now, err := w.Refused()
	o.Refused = now - refused
	return err
}

// settle waits until all that is there is at work.
func (w *World) settle(ctx context.Context) error {
	if err := w.WaitReady(ctx); err != nil {
		return err
	}
	for _, vip := range w.Service.VIPs {
		if err := w.WaitRouted(ctx, Bound, vip, w.Muxes); err != nil {
			return err
		}
	}
	return w.WaitHealthy(ctx, Bound)
}

// lose counts what is lost, of connections of backends that are not dead.
func (o *Outcome) lose(ctx context.Context, g *mptcp.Group, before mptcp.View, dead []string) error {
	o.Connections, o.Subflows = 0, 0
	for _, subflows := range before.Without(dead...) {
		o.Connections++
		o.Subflows += len(subflows)
	}
	loss, err := g.WaitLost(ctx, joinWait, before, dead...)
	o.Lost, o.SubflowLost = loss.Connections, loss.Subflows
	o.Why = append(o.Why, loss.Why...)
	return err
}

// joinFrom has all connections join from path 3, which then ends.
func (w *World) joinFrom(ctx context.Context, o *Outcome, g *mptcp.Group, dead []string) error {
	paths := w.Path(3)
	counted, err := w.joinCounters()
	if err != nil {
		return err
	}
	for _, p := range paths {
		if err := p.Join(); err != nil {
			return err
		}
	}
	want := o.Connections - o.Lost
	if o.Joined, err = g.WaitJoined(ctx, joinWait, want, dead, w.Addresses(3)...); err == nil && o.Joined < want {
		view, failed := g.View()
		err = failed
		for _, c := range view.Without(dead...).NotJoined(w.Addresses(3)...) {
			o.Why = append(o.Why, fmt.Sprintf("%s to %s at %s has not joined", c.LocalAddr(), c.RemoteAddr(), c.Backend))
		}
		now, failed := w.joinCounters()
		err = errors.Join(err, failed)
		for _, name := range slices.Sorted(maps.Keys(now)) {
			if n := now[name] - counted[name]; n != 0 {
				o.Why = append(o.Why, fmt.Sprintf("%s: %d", name, n))
			}
		}
	}
	for _, p := range paths {
		err = errors.Join(err, p.Leave())
	}
	return err
}

// joinCounters are what tells where a join was lost: verdicts of hosts, and the kernel's counters at clients and servers.
func (w *World) joinCounters() (map[string]int, error) {
	all := map[string]int{}
	verdicts, err := w.Verdicts()
	if err != nil {
		return nil, err
	}
	for name, packets := range verdicts {
		if strings.Contains(name, "join") || strings.HasPrefix(name, "drop_") {
			all["hosts "+name] = int(packets)
		}
	}
	for side, nodes := range map[string][]string{"clients": {Modern, NoTimestamp}, "servers": mptcp.Servers(w.Lab)} {
		counters, err := mptcp.Counters(w.Lab, nodes...)
		if err != nil {
			return nil, err
		}
		for name, n := range counters {
			if strings.HasPrefix(name, "MPTcpExt.MPJoin") {
				all[side+" "+name] = n
			}
		}
	}
	return all, nil
}

// Churn is all that happens, in this order.
func Churn() []Scenario {
	return []Scenario{
		{Name: "nothing happens", Do: func(context.Context, *World) ([]string, error) { return nil, nil }},
		{Name: "a mux is killed", Do: killMux, Undo: reviveMux, Short: true},
		{Name: "a mux is frozen", Do: signal("mux1", "weir-mux", unix.SIGSTOP), Undo: undoSignal("mux1", "weir-mux")},
		{Name: "weights change", Do: weights(map[string]int{"host1-w1": 3, "host2-w2": 5, "host3-w1": 2}), Undo: noWeights},
		{Name: "backends drain", Do: weights(map[string]int{"host1-w2": 0, "host2-w1": 0}), Undo: noWeights, Short: true},
		{Name: "agents are killed", Do: killAgents, Undo: restartAgents},
		{Name: "an agent is frozen", Do: freezeAgent, Undo: undoSignal("host2", "weir-agent")},
		{Name: "a backend is removed", Do: removeBackend, Undo: bringBack, Modern: true},
		{Name: "the manager is killed", Do: killManager, Undo: restartManager},
		{Name: "a host dies", Do: killHost("host1"), Modern: true, Short: true},
		{Name: "a second host dies", Do: killHost("host2"), Modern: true},
	}
}

func killMux(_ context.Context, w *World) ([]string, error) {
	w.Muxes--
	return nil, w.CutPower("mux2")
}

func reviveMux(_ context.Context, w *World) error {
	w.Muxes++
	return w.Revive("mux2")
}

func signal(node, program string, s unix.Signal) func(context.Context, *World) ([]string, error) {
	return func(_ context.Context, w *World) ([]string, error) {
		p, err := w.Process(node, program)
		if err != nil {
			return nil, err
		}
		return nil, p.Signal(s)
	}
}

func undoSignal(node, program string) func(context.Context, *World) error {
	return func(ctx context.Context, w *World) error {
		_, err := signal(node, program, unix.SIGCONT)(ctx, w)
		return err
	}
}

func weights(set map[string]int) func(context.Context, *World) ([]string, error) {
	return func(ctx context.Context, w *World) ([]string, error) {
		w.Service.Weight = set
		return nil, w.apply(ctx)
	}
}

func noWeights(ctx context.Context, w *World) error {
	w.Service.Weight = nil
	return w.apply(ctx)
}

func killAgents(_ context.Context, w *World) ([]string, error) {
	for _, n := range w.Of(netlab.Host) {
		p, err := w.Process(n.Name, "weir-agent")
		if err != nil {
			return nil, err
		}
		if err := p.Stop(unix.SIGKILL, Bound); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func restartAgents(_ context.Context, w *World) error {
	for _, n := range w.Of(netlab.Host) {
		if _, err := w.Restart(n.Name, "weir-agent"); err != nil {
			return err
		}
	}
	return nil
}

// freezeAgent has an agent be away until its host counts as silent, and so as dead.
func freezeAgent(ctx context.Context, w *World) ([]string, error) {
	if _, err := signal("host2", "weir-agent", unix.SIGSTOP)(ctx, w); err != nil {
		return nil, err
	}
	return w.backendsOf("host2"), w.waitDown(ctx, "host2")
}

func (w *World) backendsOf(host string) (all []string) {
	for _, n := range w.Of(netlab.Workload) {
		if n.Host == host {
			all = append(all, n.Name)
		}
	}
	return all
}

// waitDown waits until no backend of a host gets new connections.
func (w *World) waitDown(ctx context.Context, host string) error {
	return netlab.Poll(ctx, Bound, func() error {
		status, err := w.Status()
		if err != nil {
			return err
		}
		for _, vip := range status.VIPs {
			for _, b := range vip.Backends() {
				if b.Buckets > 0 && w.hostOf(b.Address) == host {
					return fmt.Errorf("%s of %s still has %d buckets of %s", b.Address, host, b.Buckets, vip.Metadata.Name)
				}
			}
		}
		return nil
	})
}

func (w *World) hostOf(address string) string {
	for _, n := range w.Of(netlab.Workload) {
		if n.IPv4.String() == address || n.IPv6.String() == address {
			return n.Host
		}
	}
	return ""
}

const removed = "host3-w2"

func removeBackend(ctx context.Context, w *World) ([]string, error) {
	w.Service.Removed[removed] = true
	return []string{removed}, w.apply(ctx)
}

func bringBack(ctx context.Context, w *World) error {
	delete(w.Service.Removed, removed)
	return w.apply(ctx)
}

func killManager(_ context.Context, w *World) ([]string, error) {
	p, err := w.Process("manager", "weir-manager")
	if err != nil {
		return nil, err
	}
	return nil, p.Stop(unix.SIGKILL, Bound)
}

func restartManager(_ context.Context, w *World) error {
	_, err := w.Restart("manager", "weir-manager")
	return err
}

// killHost has a host lose its power, which is home of a part of all tokens: the first of some, the second of others.
func killHost(host string) func(context.Context, *World) ([]string, error) {
	return func(_ context.Context, w *World) ([]string, error) { return w.backendsOf(host), w.CutPower(host) }
}
