package switchd

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/attribute"
	"golang.org/x/sync/errgroup"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/bgp"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/switchd/entries"
	"github.com/weirlb/weir/internal/switchd/ports"
	"github.com/weirlb/weir/internal/telemetry"
	"github.com/weirlb/weir/internal/wake"
)

// Speaker announces routes.
type Speaker interface {
	Announce([]bgp.Route) error // the full set
	Peers() []bgp.PeerState
	Run(ctx context.Context) error // ends by closing the sessions
	SetRestarting()
	HandOver() // makes that end leave the routes with the peers
}

// Manager is the manager's API for switches.
type Manager interface {
	SyncSwitch(ctx context.Context, request *weirv1.SyncSwitchRequest) (*connect.ServerStreamForClient[weirv1.SyncSwitchResponse], error)
	ReportSwitch(ctx context.Context, request *weirv1.ReportSwitchRequest) (*weirv1.ReportSwitchResponse, error)
}

// Config configures a Switch.
type Config struct {
	Name             string // of the node; a DNS label
	Version          string
	Source4, Source6 netip.Addr // of the outer headers; one may be missing
	NextHop4         netip.Addr // of the routes, by the VIP's family; a family without one is not announced
	NextHop6         netip.Addr
	Communities      []model.Community // of the routes
	VIPs, TIPs       []netip.Prefix    // that VIPs, and TIPs, must lie in
	Lease            time.Duration     // without a manager, until nothing is announced
	Lead             time.Duration     // between the withdrawal of a VIP and the removal of its entry
	DrainTime        time.Duration     // between the withdrawal of the routes and the end of the process
	Driver           hardware.Driver   // owned by the Switch
	Speaker          Speaker
	Manager          Manager
	Told             entries.Log
	Messages         []*weirv1.SyncSwitchResponse // that Told began with
	Heard            time.Time                    // the manager, by Told
	Log              *slog.Logger
	// Telemetry exports metrics and traces; nil: there is none.
	Telemetry *telemetry.Telemetry
}

// Switch is the daemon of one switch.
type Switch struct {
	config  Config
	entries *entries.Controller
	ports   *ports.Watch
	stream  *telemetry.Stream
	follows atomic.Bool // a stream is open
	report  wake.Signal // sends a report at once
	refused string      // of the last report: why
}

// New goes on from what the manager last told. Nothing is changed or announced before Run.
func New(config Config) (*Switch, error) {
	s := &Switch{config: config, stream: telemetry.NewStream("weir_switch"), report: wake.New()}
	var err error
	s.entries, err = entries.New(entries.Config{
		Driver: config.Driver, Source4: config.Source4, Source6: config.Source6, VIPs: config.VIPs, TIPs: config.TIPs, Announceable: s.announceable,
		Announce: s.announce, Lead: config.Lead, Lease: config.Lease, Told: config.Told, Changed: s.report.Set, Log: config.Log,
	}, config.Messages, config.Heard)
	if err != nil {
		config.Log.Warn("nothing is announced until a manager is reached", "err", err)
	}
	s.ports = ports.New(config.Driver, reportInterval, s.report.Set, config.Log)
	s.observe()
	return s, nil
}

// announceable says why a VIP can't be announced.
func (s *Switch) announceable(vip netip.Addr) error {
	if vip.Is4() && !s.config.NextHop4.IsValid() {
		return errors.New("there is no next hop of its family: set --next-hop4")
	}
	if vip.Is6() && !s.config.NextHop6.IsValid() {
		return errors.New("there is no next hop of its family: set --next-hop6")
	}
	return nil
}

// announce has routers told of the VIPs, and of nothing else.
func (s *Switch) announce(vips []netip.Addr) error {
	routes := make([]bgp.Route, 0, len(vips))
	for _, vip := range vips {
		routes = append(routes, bgp.Route{Prefix: netip.PrefixFrom(vip, vip.BitLen()), Communities: s.config.Communities})
	}
	return s.config.Speaker.Announce(routes)
}

// Run serves until ctx ends, handOver tells, or something fails that a restart may mend. Only the first of these withdraws
// the routes: the other two leave them to a successor. The tables stay.
func (s *Switch) Run(ctx context.Context, handOver <-chan os.Signal) error {
	s.entries.Start(ctx)
	if _, _, status := s.entries.Report(); status.GetAnnounced() > 0 {
		s.config.Speaker.SetRestarting() // the routes are the same before and after
	}
	group, serving := errgroup.WithContext(context.WithoutCancel(ctx))
	following, stopFollowing := context.WithCancel(serving)
	defer stopFollowing()
	// The speaker must not see the failure of another part before it is told what it means.
	speaking, stopSpeaking := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSpeaking()
	group.Go(func() error { return s.entries.Run(following) })
	group.Go(func() error { return rpc.Follow(following, s.config.Log, "switch", s.open, s.apply) })
	group.Go(func() error { return s.ports.Run(following) })
	group.Go(func() error { return s.reports(following) })
	group.Go(func() error {
		err := s.config.Speaker.Run(speaking)
		if err == nil && speaking.Err() == nil {
			err = errors.New("the bgp speaker ended")
		}
		return err
	})
	select {
	case <-ctx.Done():
		s.config.Log.Info("stopping: routes are withdrawn, then traffic drains; the entries stay", "drain", s.config.DrainTime)
		if err := s.entries.Stop(); err != nil {
			s.config.Log.Warn("withdraw all routes", "err", err)
		}
		wake.After(serving, s.config.DrainTime)
	case <-handOver:
		s.config.Log.Info("handing over: routes stay")
		s.config.Speaker.HandOver()
	case <-serving.Done():
		s.config.Speaker.HandOver()
	}
	stopFollowing()
	stopSpeaking()
	err := group.Wait()
	s.config.Telemetry.Close()
	return errors.Join(err, s.config.Driver.Close())
}

// open begins a stream, which registers the switch.
func (s *Switch) open(ctx context.Context) (*connect.ServerStreamForClient[weirv1.SyncSwitchResponse], error) {
	s.follows.Store(false)
	s.stream.Opens()
	request := &weirv1.SyncSwitchRequest{Name: s.config.Name, Version: s.config.Version}
	for _, source := range []netip.Addr{s.config.Source4, s.config.Source6} {
		if source.IsValid() {
			request.Addresses = append(request.Addresses, compile.OptionalAddress(source))
		}
	}
	return s.config.Manager.SyncSwitch(ctx, request)
}

// apply applies one message of the stream. After an error the stream must begin with a snapshot.
func (s *Switch) apply(message *weirv1.SyncSwitchResponse) error {
	s.follows.Store(true)
	s.stream.Message()
	began := time.Now()
	_, _, ended := s.config.Telemetry.Follow(context.Background(), "apply", began, message.GetTraceParents(),
		attribute.Int64("weir.generation", int64(message.GetGeneration())))
	err := s.entries.Apply(message)
	ended(err)
	s.stream.Applied(time.Since(began), err)
	s.report.Set()
	return err
}
