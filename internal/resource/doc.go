// Package resource serves VIPs, address pools, prefix lists, nodes and events to users: what WeirService reads and writes.
// Virtual networks are served by package network, and written here along with VIPs; the fabric by package placed.
//
//	ApplyVIPs, CreateVIP ... ─▶ admission (tenant, quotas, what fits together) ─▶ tables ─▶ store.Update (one transaction)
//	ListVIPs, WatchVIPs  ... ─▶ State as users are shown it, with status and conditions
//	WatchNodes, WatchStatus, WatchRates ─▶ package live
//
// Invariants:
//   - what decides about a write is asked again in the transaction that writes it;
//   - a caller is shown what its tenants have, and nothing of others.
package resource

import (
	"context"
	"log/slog"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/nodesync/muxrate"
	"github.com/weirlb/weir/internal/resource/drain"
	"github.com/weirlb/weir/internal/resource/live"
	"github.com/weirlb/weir/internal/resource/network"
	"github.com/weirlb/weir/internal/resource/placed"
	"github.com/weirlb/weir/internal/sessioncount"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

// Hub is what resources need of the one that tells nodes their tables.
type Hub interface {
	// WithProgress is a State with what nodes of all managers run.
	WithProgress(*store.State) *store.State
	// NodeIsCurrent says whether a node that is connected here runs what it shall.
	NodeIsCurrent(node string) (current, here bool)
	// PublishedGeneration is the generation that muxes are sent, and how many hosts are behind.
	PublishedGeneration() (published model.Generation, late int)
}

// Config is what a Service works with.
type Config struct {
	Name    string // of this manager
	Version string
	Store   *store.Store
	// StoreName is "embedded: 3 members".
	StoreName func() string
	Hub       Hub
	Recorder  *events.Recorder
	Sessions  sessioncount.Counts
	FreeFor   func(model.EndpointKey, desired.Row) time.Duration                     // how long a slot is known to be free
	Reported  func(*store.State, model.Node) (nodestatus.Status, *weirv1.NodeStatus) // the newest that a node reported
	Uses      func(s *store.State, host string) map[model.SNATKey]*weirv1.SNATUse    // that a host reported last
	Forget    func(node string)                                                      // what a node reported
	Bookmark  time.Duration                                                          // between two bookmarks of an idle watch
	Now       func() time.Time
	Log       *slog.Logger
	Stopping  <-chan struct{} // closed when watches shall end

	Watches live.Watches
	Rates   *muxrate.Meter
	Chooser placed.Chooser
}

func (m *Config) view() *store.State { return m.Hub.WithProgress(m.Store.State()) }

// writer writes VIPs, pools, prefix lists, virtual networks and the overlay.
type writer struct {
	*Config

	indexed    indexedTenants
	networks   *network.Networks
	placements *placed.Placements
}

// The resources, each with its calls.
type (
	VIPs        struct{ *writer }
	Pools       struct{ *writer }
	PrefixLists struct{ *writer }
	Events      struct{ *Config }
	Nodes       struct {
		*Config

		summaries summaries
	}
)

// Service serves the calls of all resources.
type Service struct {
	*Config
	*VIPs
	*Pools
	*PrefixLists
	*network.Networks
	*placed.Fabrics
	*placed.Placements
	*Events
	*Nodes
	*drain.Switches
	*live.Streams
}

// New makes a Service.
func New(cfg *Config) *Service {
	w := &writer{Config: cfg}
	w.networks = &network.Networks{Store: cfg.Store, Recorder: cfg.Recorder, Tenants: w.Tenants, Log: cfg.Log}
	w.placements = &placed.Placements{Store: cfg.Store, Chooser: cfg.Chooser}
	fabrics := &placed.Fabrics{Store: cfg.Store, Recorder: cfg.Recorder, Log: cfg.Log}
	switches := &drain.Switches{Store: cfg.Store, Recorder: cfg.Recorder, Now: cfg.Now, Log: cfg.Log}
	nodes := &Nodes{Config: cfg}
	streams := live.New(&live.Config{
		Store: cfg.Store, View: cfg.view, Nodes: nodes.nodes,
		Status: func(ctx context.Context) *weirv1.GetStatusResponse {
			stored := cfg.Store.State()
			return nodes.status(ctx, stored, cfg.Hub.WithProgress(stored), nil)
		},
		Rates:   cfg.Rates,
		Watches: &cfg.Watches, Now: cfg.Now, Stopping: cfg.Stopping,
	})
	return &Service{cfg, &VIPs{w}, &Pools{w}, &PrefixLists{w}, w.networks, fabrics, w.placements, &Events{cfg}, nodes, switches, streams}
}
