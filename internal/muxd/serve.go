package muxd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/weirlb/weir/internal/bgp"
	"github.com/weirlb/weir/internal/daemon"
	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/datapath/pin"
	"github.com/weirlb/weir/internal/muxd/redirect"
	"github.com/weirlb/weir/internal/muxd/synflood"
	"github.com/weirlb/weir/internal/netlink"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/segment"
	"github.com/weirlb/weir/internal/slowpath"
	"github.com/weirlb/weir/internal/telemetry"
	"github.com/weirlb/weir/internal/trust"
)

// Serve opens the data plane and runs the mux on it. It returns after a clean stop, when ctx ends, or
// a hand-over, at SIGUSR2.
func Serve(ctx context.Context, o Options, log *slog.Logger) error {
	if err := daemon.CheckRoot(); err != nil {
		return err
	}
	s, err := o.settings(netlink.FindInterface)
	if err != nil {
		return err
	}
	process := telemetry.Process{Program: "weir-mux", Name: o.Name, Version: daemon.Version}
	observed, err := telemetry.Start(ctx, o.Telemetry, process, log)
	if err != nil {
		return err
	}
	defer observed.Close()
	return serve(ctx, o, s, observed, log)
}

func serve(ctx context.Context, o Options, s settings, observed *telemetry.Telemetry, log *slog.Logger) error {
	handOver := make(chan os.Signal, 1)
	signal.Notify(handOver, syscall.SIGUSR2)
	defer signal.Stop(handOver)

	s.bgp.Log = log
	speaker, err := bgp.New(s.bgp)
	if err != nil {
		return err
	}
	client, closed, err := o.Connect(ctx, trust.Mux, log)
	if err != nil {
		return err
	}
	defer closed()
	datapath, err := o.openDatapath(s, log)
	if err != nil {
		return err
	}
	noteRestart(datapath, speaker.SetRestarting)
	discard, err := netlink.NewDiscard(o.Interface, log)
	if err != nil {
		return errors.Join(err, datapath.Close())
	}
	defer discard.Close()
	neighbors, err := openNeighbors(o.Interface, s.neighbors, client)
	if err != nil {
		return errors.Join(err, datapath.Close())
	}
	defer neighbors.close()
	var counters slowpath.Counters
	redirector := redirect.New(log)
	m, err := New(Config{
		Name: o.Name, Version: daemon.Version, Interface: o.Interface,
		Settings: pool.Settings{
			Source4: s.bgp.NextHop4, Source6: s.bgp.NextHop6, Prefix4: s.prefix4, Prefix6: s.prefix6,
			Encapsulation: pool.Encapsulation(o.Encapsulation), MTU: s.link.MTU, MAC: s.link.MAC,
		},
		NeighborPrefixes: s.neighbors, Segment: neighbors.segment, Leases: neighbors.client,
		Aggregates: s.aggregates, NATPrefixes: s.natPrefixes, RoutesFile: filepath.Join(o.DataDir, "routes"), DrainTime: o.DrainTime, GracefulRestart: o.GracefulRestart, Lead: withdrawLead,
		Datapath: datapath, Speaker: speaker, Manager: client, Log: log, Telemetry: observed,
		NextHops: func(changed func(netlink.State)) (NextHops, error) {
			return netlink.New(netlink.Config{Interface: o.Interface, Changed: changed, Log: log})
		},
		Discard: discard.Set, KeepDiscarding: discard.Keep,
		SlowPath:         func(ctx context.Context) error { return serveSlowPath(ctx, datapath, &counters, log) },
		SlowPathCounters: &counters,
		Redirector:       redirector,
		Floods:           synflood.Limits{Least: float64(o.SYNFloodLeast), Most: float64(o.SYNFloodMost)},
		Load:             netlink.NewLoad(o.Interface, datapath).Sample, NoShares: !o.FairDrop,
		Redirects: func(ctx context.Context) error {
			return serveRedirects(ctx, datapath, redirector, s.bgp.NextHop4, s.bgp.NextHop6)
		},
	})
	if err != nil {
		return errors.Join(err, datapath.Close())
	}
	o.started(datapath.Mode(), log)
	return m.Run(ctx, handOver)
}

// noteRestart says so if live tables were taken over.
func noteRestart(datapath *mux.Datapath, note func()) {
	if live, err := datapath.Endpoints(); err == nil && len(live) > 0 {
		note()
	}
}

// neighbors are what a mux needs that answers ARP and NDP.
type neighbors struct {
	segment *segment.Segment
	client  *rpc.Client // beside what streams need: a lease does not wait for them
}

func openNeighbors(iface string, prefixes []netip.Prefix, client *rpc.Client) (n neighbors, err error) {
	if len(prefixes) == 0 {
		return n, nil
	}
	if n.segment, err = segment.Open(iface); err != nil {
		return n, err
	}
	if n.client, err = client.Separate(); err != nil {
		n.close()
	}
	return n, err
}

func (n neighbors) close() {
	if n.segment != nil {
		n.segment.Close()
	}
	if n.client != nil {
		n.client.Close()
	}
}

func (o *Options) openDatapath(s settings, log *slog.Logger) (*mux.Datapath, error) {
	sessions := 0
	if len(s.natPrefixes) > 0 {
		sessions = o.MaxNATSessions
	}
	datapath, err := mux.Open(mux.Config{
		Interface: o.Interface, PinPath: o.PinPath, Mode: s.mode, Log: log,
		MaxEndpoints: o.MaxEndpoints, MaxBuckets: o.MaxBuckets, MaxBackends: o.MaxBackends, MaxSNATPorts: o.MaxSNATPorts,
		MaxFlows: o.MaxFlows, MaxVIPFlows: o.MaxVIPFlows, MaxSources: o.MaxSources,
		MaxNATSessions: sessions,
	})
	if errors.Is(err, pin.ErrLocked) {
		err = fmt.Errorf("%w: stop the other weir-mux, or give this one another --pin-path", err)
	}
	return datapath, err
}

// started tells people and systemd that forwarding goes on from here.
func (o *Options) started(mode string, log *slog.Logger) {
	log.Info("mux started", "name", o.Name, "interface", o.Interface, "mode", mode, "manager", o.Manager)
	if len(o.Peers) == 0 && len(o.Neighbors) == 0 {
		log.Warn("no --peer and no --neighbor-prefix: VIPs are announced to nobody")
	}
	daemon.Ready(log)
}

// serveRedirects tells hosts of connections that may leave the muxes.
func serveRedirects(
	ctx context.Context, datapath *mux.Datapath, redirector *redirect.Redirector, source4, source6 netip.Addr,
) error {
	noted, err := datapath.Redirects()
	if err != nil {
		return err
	}
	return redirector.Run(ctx, noted, source4, source6)
}

// serveSlowPath sends on what the program can't.
func serveSlowPath(ctx context.Context, datapath *mux.Datapath, counters *slowpath.Counters, log *slog.Logger) error {
	punts, err := datapath.Punts()
	if err != nil {
		return err
	}
	return slowpath.New(datapath, punts, counters, log).Run(ctx)
}
