// Package links tells how the links of the fabric are other than declared, by what switches report of their ports and while
// a manager leads. What is compared is in package cabling of the fabric.
//
//	switches: ports, neighbours ──▶ other than declared, for a while? ──▶ events, metrics
//	          ups and downs     ──▶ many within minutes?             ──▶
//
// Invariants: nothing is told of a difference that does not last, as while a switch or its daemon restarts; each reason has
// one event, which names what differs now, so that no switch fills the log; a new leader does not tell what was told.
package links

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/controller/reported"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/fabric/cabling"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/eventlog"
)

const (
	interval = 5 * time.Second
	// holdTime is how long a difference lasts before it is told: longer than a daemon of LLDP takes to restart.
	holdTime = 30 * time.Second
)

// Counts are links of the fabric.
type Counts struct{ Declared, There, Missing, Down, Unexpected, Flapping int }

// Controller tells of links.
type Controller struct {
	Store   *store.Store
	Reports *reported.Source
	Events  interface{ Record(eventlog.Event) }
	Now     func() time.Time
	Log     *slog.Logger

	mu     sync.Mutex
	counts Counts
}

// Counts are those of the last look; none, unless this manager leads.
func (c *Controller) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

func (c *Controller) setCounts(counts Counts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts = counts
}

// Run looks until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	defer c.setCounts(Counts{})
	w := c.Watch()
	told, _, err := c.Store.Events.List(ctx)
	if err != nil && ctx.Err() == nil {
		c.Log.Warn("it is not known which links were told of", "err", err)
	}
	w.recall(told)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		w.Step(c.Store.State(), c.Now())
	}
}

// Watch follows what switches report.
type Watch struct {
	*Controller

	ports  *reported.Part[*weirv1.SwitchPort]
	name   string // of the fabric
	fabric *fabric.Fabric
	plan   *cabling.Plan
	begun  time.Time
	of     map[cabling.Pair]*state
	flaps  flaps
	flap   time.Time         // when it was told last that links flap
	texts  map[string]string // that were told last, by reason
	// recalled is what a leader before told, by reason, until a pair is known that it names.
	recalled map[string]recalled
}

// recalled is what an event of a leader before was about.
type recalled struct {
	fabric string
	pairs  []cabling.Pair
}

// state is how the links of two switches differ.
type state struct {
	now, told cabling.Difference
	since     time.Time
}

// Watch begins to follow what switches report.
func (c *Controller) Watch() *Watch {
	return &Watch{
		Controller: c, of: map[cabling.Pair]*state{}, flaps: flaps{}, texts: map[string]string{}, recalled: map[string]recalled{},
		ports: reported.New(c.Reports, "ports", func(d *weirv1.NodeStatus) []*weirv1.SwitchPort { return d.GetSwitch().GetPorts() }),
	}
}

// recall notes what a leader before has told, of events with the latest last.
func (w *Watch) recall(told []eventlog.Event) {
	for _, e := range told {
		switch {
		case e.Kind != events.KindFabric:
		case e.Reason == reason.LinksRestored:
			w.forget(func(fabric string) bool { return fabric == e.Object })
		case reasons[e.Reason].count != nil:
			w.texts[e.Reason], w.recalled[e.Reason] = e.Message, recalled{e.Object, pairsOf(e.About)}
		}
	}
}

// forget drops what was recalled of fabrics.
func (w *Watch) forget(of func(fabric string) bool) {
	for r, before := range w.recalled {
		if of(before.fabric) {
			delete(w.texts, r)
			delete(w.recalled, r)
		}
	}
}

// reasons are those of events, each with what it counts.
var reasons = map[string]struct {
	text  string
	count func(cabling.Difference) (n int, port string)
}{
	reason.LinkMissing:    {"links that are declared are not there: %s", func(d cabling.Difference) (int, string) { return d.Missing, "" }},
	reason.LinkDown:       {"links are down: %s", func(d cabling.Difference) (int, string) { return d.Down, d.Port }},
	reason.LinkFlapping:   {"links go up and down: %s", func(d cabling.Difference) (int, string) { return d.Flapping, d.FlappingPort }},
	reason.LinkUnexpected: {"links are there that are not declared: %s", func(d cabling.Difference) (int, string) { return d.Unexpected, "" }},
}

// Step looks at what switches report, as of now.
func (w *Watch) Step(s *store.State, now time.Time) {
	w.follow(s, now)
	if w.plan == nil {
		w.setCounts(Counts{})
		return
	}
	ports := w.observe(s, now)
	known, there := w.plan.Compare(ports)
	w.flaps.observe(w.plan, ports, now)
	for pair := range w.of { // nobody says any more that a link is there which is not declared
		if _, isKnown := known[pair]; !isKnown && !w.plan.Declares(pair) {
			known[pair] = cabling.Difference{}
		}
	}
	for pair, d := range known {
		at := w.of[pair]
		if at == nil {
			at = &state{since: now}
			w.of[pair] = at
		}
		if at.now != d {
			at.now, at.since = d, now
		}
	}
	told, counts := map[cabling.Pair]cabling.Difference{}, Counts{Declared: w.plan.Links, There: there}
	for pair, at := range w.of {
		_, isKnown := known[pair]
		if isKnown && now.Sub(at.since) >= holdTime {
			at.told = at.now
		}
		if at.told == (cabling.Difference{}) {
			continue
		}
		told[pair] = at.told
		counts.Missing += at.told.Missing
		counts.Down += at.told.Down
		counts.Unexpected += at.told.Unexpected
	}
	maps.DeleteFunc(w.of, func(_ cabling.Pair, at *state) bool { return at.now == at.told && at.told == (cabling.Difference{}) })
	for pair, flap := range w.flaps.links(w.plan) {
		d := told[pair]
		d.Flapping, d.FlappingPort = flap.links, flap.port
		told[pair] = d
		counts.Flapping += flap.links
	}
	w.setCounts(counts)
	if now.Sub(w.begun) > holdTime+interval { // a leader that just began knows little
		w.tell(told, known, now)
	}
}

// follow has the plan of the fabric that there is.
func (w *Watch) follow(s *store.State, now time.Time) {
	var name string
	var network *fabric.Fabric
	for f := range s.Fabrics.Values() {
		name, network = f.Message.GetName(), f.Network
	}
	if network == w.fabric && name == w.name {
		return
	}
	if w.fabric != nil { // what it was is over, or named by now
		clear(w.recalled)
	}
	if w.name != "" && name != w.name {
		clear(w.texts)
	}
	if name != "" {
		w.forget(func(fabric string) bool { return fabric != name })
	}
	w.name, w.fabric, w.plan, w.begun, w.of, w.flaps = name, network, nil, now, map[cabling.Pair]*state{}, flaps{}
	if network != nil {
		w.plan = cabling.New(network)
	}
}

// observe is what switches of the fabric that are connected report of their ports.
func (w *Watch) observe(s *store.State, now time.Time) map[string][]cabling.Port {
	all := map[string][]cabling.Port{}
	for node := range desired.SwitchNodes(s.State) {
		if !s.Streams.At(node.Name) || !w.plan.Has(node.Name) {
			continue
		}
		for _, p := range w.ports.Of(s, node.Name, now) {
			all[node.Name] = append(all[node.Name], cabling.PortOf(p))
		}
	}
	w.ports.Forget(s)
	return all
}

// tell records what differs, and what does not any more, if that is news.
func (w *Watch) tell(differences, known map[cabling.Pair]cabling.Difference, now time.Time) {
	differed, differs := false, false
	maps.DeleteFunc(w.recalled, func(name string, before recalled) bool {
		switch {
		case len(known) == 0:
			return false
		case name == reason.LinkFlapping: // it takes time to know
			return now.Sub(w.begun) >= flapTime
		case name == reason.LinkUnexpected: // it may be gone for ever
			return true
		}
		return slices.ContainsFunc(before.pairs, func(p cabling.Pair) bool {
			_, isKnown := known[p]
			return isKnown || !w.plan.Declares(p)
		})
	})
	for name, r := range reasons {
		text, pairs := cabling.Text(differences, r.count)
		if text != "" {
			text, differs = events.CutMessage(fmt.Sprintf(r.text, text)), true
		}
		before := w.texts[name]
		if _, recalled := w.recalled[name]; text == "" && recalled {
			differs = true // as far as is known
			continue
		}
		if name == reason.LinkFlapping && text != before {
			if now.Sub(w.flap) < flapPause {
				differs = differs || before != ""
				continue
			}
			w.flap = now
		}
		differed = differed || before != ""
		if w.texts[name] = text; text != "" && text != before {
			e := eventlog.Event{Warning: true, Reason: name, Message: text}
			for _, pair := range pairs {
				e.About = append(e.About, pair.A, pair.B)
			}
			w.record(e)
		}
	}
	if differed && !differs {
		w.record(eventlog.Event{Reason: reason.LinksRestored, Message: "all links that are known of are as declared"})
	}
}

// pairsOf are the pairs that an event is about, by the names of both.
func pairsOf(about []string) (pairs []cabling.Pair) {
	for names := range slices.Chunk(about, 2) {
		pairs = append(pairs, cabling.PairOf(names[0], names[len(names)-1]))
	}
	return pairs
}

func (w *Watch) record(e eventlog.Event) {
	e.Kind, e.Object = events.KindFabric, w.name
	w.Events.Record(e)
	w.Log.Info(e.Message, "fabric", w.name, "reason", e.Reason)
}
