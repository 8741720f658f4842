package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/datapath/agent/snat"
	"github.com/weirlb/weir/internal/datapath/agent/tenant"
	"github.com/weirlb/weir/internal/datapath/pin"
	"github.com/weirlb/weir/internal/model"
)

// Sizes of tables that Config leaves 0.
const (
	DefaultMaxSessions = 1 << 18
	DefaultMaxRules    = 1 << 14
)

// Config says where the data plane runs and how large it is.
type Config struct {
	Uplink      string // interface that the muxes' packets arrive on; Ethernet
	PinPath     string // folder on a bpffs
	MaxSessions int    // 0: DefaultMaxSessions
	MaxRules    int    // 0: DefaultMaxRules; bounds workloads too
	// MaxVIPSessions bounds the confirmed sessions of a VIP, and its new ones; 0: what others leave does.
	MaxVIPSessions int
	// CookieTick is of the timestamps of new connections; 0: DefaultCookieTick. All hosts have the same, for one that
	// takes a connection over is not told its tick: only tests, of one host each, set another.
	CookieTick time.Duration
	// MaxSNATFlows is room for workloads' own connections, half of it for those of one; 0:
	// DefaultMaxSNATFlows. MaxQueued is how many packets of a workload may wait for a port; 0: DefaultMaxQueued.
	MaxSNATFlows int
	MaxQueued    int
	// AnySource lets workloads send from addresses that do not live behind their interface.
	AnySource bool
	Log       *slog.Logger
}

// Datapath is the running data plane. Its methods may be called from any goroutine.
type Datapath struct {
	*SessionTable
	*SNATTable

	config  Config
	folder  *pin.Folder
	objects bpf.AgentObjects

	cookieScale    uint32 // of Config.CookieTick
	cannotTakeOver error  // why the kernel makes no sockets of SYN cookies; nil: it does

	verdicts abi.Verdicts

	mu      sync.Mutex                                 // guards the below, and what tables hold
	rules   map[model.HostBackendKey]model.HostBackend // as in nat_rules, and what they come from
	numbers *tenant.Numbers
}

// Open loads and attaches the data plane, or adopts the one that runs: its tables and sessions
// stay, its programs are replaced in place. It must be called in the uplink's network namespace,
// as must Refresh and SetWorkloads.
func Open(config Config) (*Datapath, error) {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.MaxSessions == 0 {
		config.MaxSessions = DefaultMaxSessions
	}
	if config.MaxRules == 0 {
		config.MaxRules = DefaultMaxRules
	}
	if config.MaxSNATFlows == 0 {
		config.MaxSNATFlows = DefaultMaxSNATFlows
	}
	if config.MaxQueued == 0 {
		config.MaxQueued = DefaultMaxQueued
	}
	if config.CookieTick == 0 {
		config.CookieTick = DefaultCookieTick
	}
	scale, err := session.CookieScale(config.CookieTick)
	if err != nil {
		return nil, fmt.Errorf("set the cookie tick: %w", err)
	}
	folder, err := pin.Open(config.PinPath)
	if err != nil {
		return nil, err
	}
	d := newDatapath(config)
	d.folder, d.cookieScale, d.cannotTakeOver = folder, scale, kernelTakesOver()
	if err := d.start(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// newDatapath has nothing loaded yet.
func newDatapath(config Config) *Datapath {
	d := &Datapath{config: config}
	rules := func() map[model.HostBackendKey]model.HostBackend { return d.rules }
	d.numbers = tenant.NewNumbers(&d.objects)
	d.SessionTable = session.New(&d.objects, &d.mu, config.MaxVIPSessions, rules)
	d.SNATTable = snat.New(snat.Config{
		Objects: &d.objects, Uplink: config.Uplink, Rules: rules, Numbers: d.numbers, Lock: &d.mu,
		SetTunnels: func() error { return d.setTunnels(d.rules) },
		SetWorkloads: func(n int) error {
			return d.changeSettings(func(s *bpf.AgentAgentSettings) { s.Snat = uint32(n) })
		},
	})
	return d
}

func (d *Datapath) start() error {
	uplink, err := findUplink(d.config.Uplink)
	if err != nil {
		return err
	}
	if err := d.load(); err != nil {
		return err
	}
	if err := errors.Join(d.numbers.Read(), d.readRules(), d.Read()); err != nil {
		return err
	}
	if err := d.useUplink(uplink); err != nil {
		return err
	}
	return d.updateWorkloadLinks()
}

// Close lets go of the data plane, which goes on running.
func (d *Datapath) Close() error {
	return errors.Join(d.objects.Close(), d.folder.Close())
}

// Unload stops the data plane, removes it, and closes d.
func (d *Datapath) Unload() error {
	return errors.Join(d.folder.Remove(), d.Close())
}

// Unload stops and removes the data plane that is pinned at pinPath, if there is one. It refuses
// while an agent runs it.
func Unload(pinPath string) error {
	folder, err := pin.Open(pinPath)
	if err != nil {
		return fmt.Errorf("unload agent's data plane: %w", err)
	}
	return errors.Join(folder.Remove(), folder.Close())
}
