package agentd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/weirlb/weir/internal/agentd/fastpath"
	"github.com/weirlb/weir/internal/agentd/overlay"
	"github.com/weirlb/weir/internal/daemon"
	"github.com/weirlb/weir/internal/datapath/agent"
	agentfastpath "github.com/weirlb/weir/internal/datapath/agent/fastpath"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/datapath/pin"
	"github.com/weirlb/weir/internal/netlink"
	"github.com/weirlb/weir/internal/probe"
	"github.com/weirlb/weir/internal/telemetry"
	"github.com/weirlb/weir/internal/trust"
)

// Serve opens the data plane and runs the agent on it until ctx ends. The data plane stays.
func Serve(ctx context.Context, o Options, log *slog.Logger) error {
	if err := cmp.Or(o.check(), daemon.CheckRoot()); err != nil {
		return err
	}
	observed, err := telemetry.Start(ctx, o.Telemetry, telemetry.Process{Program: "weir-agent", Name: o.Name, Version: daemon.Version}, log)
	if err != nil {
		return err
	}
	defer observed.Close()
	addresses, err := uplinkAddresses(o.Uplink)
	if err != nil {
		return err
	}
	client, closed, err := o.Connect(ctx, trust.Host, log)
	if err != nil {
		return err
	}
	defer closed()
	workloads, err := netlink.NewWorkloads(o.Uplink)
	if err != nil {
		return err
	}
	defer workloads.Close()
	datapath, err := o.open(log)
	if err != nil {
		return err
	}
	defer datapath.Close()
	defer observed.Close() // it reads the tables
	live, err := agent.Inspect(o.PinPath)
	if err != nil {
		return err
	}
	ports, closePorts, err := o.ports(datapath, client)
	if err != nil {
		return err
	}
	defer closePorts()
	controls, sender, err := openFastpath(datapath)
	if err != nil {
		return err
	}
	defer sender.Close()
	networks := o.networks(datapath, log)
	defer networks.Close()
	a, err := New(Config{
		Name: o.Name, Addresses: addresses, Native: o.native, Version: daemon.Version, Uplink: o.Uplink, Live: live.Rules,
		Datapath: datapath, Workloads: workloads, Manager: client, Probe: probe.Run, Listeners: netlink.Listeners, Log: log, Telemetry: observed, MaxSessions: o.MaxSessions,
		Ports: ports, Sweep: func() (session.Report, error) { return o.sweep(datapath, log) },
		KeepAlive: func() (int, error) { return datapath.KeepAlive(session.Now()) }, KeepAliveInterval: keepAliveInterval,
		EvacuateSessions: datapath.EvacuateSessions, Fastpath: datapath, Multipath: datapath, ControlMessages: controls, Send: sender.Send,
		Networks: networks, Samples: datapath, Explain: datapath.Explain,
	})
	if err != nil {
		return err
	}
	log.Info("agent started", "name", o.Name, "uplink", o.Uplink, "manager", o.Manager, "generation", live.Generation)
	daemon.Ready(log)
	return a.Run(ctx)
}

// open opens the data plane, which no other agent may run.
func (o *Options) open(log *slog.Logger) (*agent.Datapath, error) {
	datapath, err := agent.Open(agent.Config{
		Uplink: o.Uplink, PinPath: o.PinPath, MaxSessions: o.MaxSessions, MaxVIPSessions: o.MaxVIP, MaxRules: o.MaxRules,
		MaxSNATFlows: o.SNATFlows, MaxQueued: o.Queue.Packets, AnySource: !o.Sources, Log: log,
	})
	if errors.Is(err, pin.ErrLocked) {
		return nil, fmt.Errorf("%w: stop the other weir-agent, or give this one another --pin-path", err)
	}
	return datapath, err
}

// networks runs virtual networks beside the data plane.
func (o *Options) networks(datapath *agent.Datapath, log *slog.Logger) *overlay.Controller {
	return overlay.New(overlay.Config{
		PinPath: networkPins(o.PinPath), DataDir: o.DataDir, Uplink: o.Uplink, Sessions: o.Network.Sessions, Flows: o.Network.Flows, Seal: datapath.Seal, Log: log,
	})
}

// openFastpath opens the reader and the socket of Fastpath. Whoever runs the reader closes it.
func openFastpath(datapath *agent.Datapath) (*agentfastpath.ControlMessages, *fastpath.Sender, error) {
	sender, err := fastpath.NewSender()
	if err != nil {
		return nil, nil, err
	}
	controls, err := datapath.ControlMessages()
	if err != nil {
		return nil, nil, errors.Join(err, sender.Close())
	}
	return controls, sender, nil
}
