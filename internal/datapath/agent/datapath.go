package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/attachment"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/explain"
	"github.com/weirlb/weir/internal/datapath/agent/fastpath"
	"github.com/weirlb/weir/internal/datapath/agent/multipath"
	"github.com/weirlb/weir/internal/datapath/agent/natrule"
	"github.com/weirlb/weir/internal/datapath/agent/sample"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/datapath/agent/snat"
	"github.com/weirlb/weir/internal/datapath/agent/steer"
	"github.com/weirlb/weir/internal/datapath/agent/syncookie"
	"github.com/weirlb/weir/internal/datapath/agent/tenant"
	"github.com/weirlb/weir/internal/datapath/pin"
	"github.com/weirlb/weir/internal/flowhash"
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
	// CookieTick is of the timestamps of new connections; 0: session.DefaultCookieTick. All hosts have the same, for one that
	// takes a connection over is not told its tick: only tests, of one host each, set another.
	CookieTick time.Duration
	// MaxSNATFlows is room for workloads' own connections, half of it for those of one; 0:
	// snat.DefaultMaxFlows. MaxQueued is how many packets of a workload may wait for a port; 0: snat.DefaultMaxQueued.
	MaxSNATFlows int
	MaxQueued    int
	// AnySource lets workloads send from addresses that do not live behind their interface.
	AnySource bool
	Log       *slog.Logger
}

// Datapath is the running data plane. It loads the programs and attaches them; what they forward by is up to its facets.
// Their methods may be called from any goroutine.
type Datapath struct {
	*natrule.Rules
	*session.Tracker
	*snat.Translator
	*syncookie.SYNCookies
	*steer.Steering
	*multipath.Directory
	*fastpath.Connections
	*sample.Samples
	*attachment.Uplink
	*attachment.Workloads
	*explain.Explainer

	config  Config
	folder  *pin.Folder
	objects bpf.AgentObjects

	cookieScale uint32 // of Config.CookieTick

	verdicts abi.Verdicts

	mu      sync.Mutex // guards what facets keep, and what tables hold
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
		config.MaxSNATFlows = snat.DefaultMaxFlows
	}
	if config.MaxQueued == 0 {
		config.MaxQueued = snat.DefaultMaxQueued
	}
	if config.CookieTick == 0 {
		config.CookieTick = session.DefaultCookieTick
	}
	scale, err := session.CookieScale(config.CookieTick)
	if err != nil {
		return nil, fmt.Errorf("set the cookie tick: %w", err)
	}
	folder, err := pin.Open(config.PinPath)
	if err != nil {
		return nil, err
	}
	d := newDatapath(config, folder)
	d.cookieScale = scale
	if err := d.start(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// newDatapath has nothing loaded yet.
func newDatapath(config Config, folder *pin.Folder) *Datapath {
	d := &Datapath{config: config, folder: folder}
	rules := func() map[model.HostBackendKey]model.HostBackend { return d.All() }
	d.numbers = tenant.NewNumbers(&d.objects)
	d.Tracker = session.New(&d.objects, &d.mu, config.MaxVIPSessions, rules)
	d.Translator = snat.New(snat.Config{
		Objects: &d.objects, Uplink: config.Uplink, Rules: rules, Numbers: d.numbers, Lock: &d.mu,
		SetTunnels: func() error { return d.SetTunnels() },
		SetWorkloads: func(n int) error {
			return bpf.ChangeSettings(&d.objects, func(s *bpf.AgentAgentSettings) { s.Snat = uint32(n) })
		},
	})
	d.Directory = multipath.New(&d.objects)
	d.Rules = natrule.New(natrule.Config{
		Objects: &d.objects, Max: config.MaxRules, Numbers: d.numbers, Sessions: d.Tracker, SNAT: d.Translator, Lock: &d.mu,
		Multipath: d.SetMultipath,
	})
	d.SYNCookies = syncookie.New(&d.objects, &d.mu, config.Log)
	d.Connections = fastpath.New(&d.objects)
	d.Samples = sample.New(&d.objects)
	d.Steering = steer.New(&d.objects, &d.mu)
	d.Explainer = explain.New(&d.objects)
	interfaces := attachment.Config{
		Uplink: config.Uplink, Settings: d.setSettings, Objects: &d.objects, Folder: folder, Lock: &d.mu, Log: config.Log,
	}
	d.Uplink, d.Workloads = attachment.NewUplink(interfaces), attachment.NewWorkloads(interfaces)
	return d
}

// setSettings sets what is not of the uplink.
func (d *Datapath) setSettings(s *bpf.AgentAgentSettings) {
	s.TakeOver = d.TakeOver()
	s.CookieScale = d.cookieScale
	s.SnatFlows, s.SnatQueueLimit = uint32(d.config.MaxSNATFlows/2), uint32(d.config.MaxQueued)
	s.CheckSources = 1
	if d.config.AnySource {
		s.CheckSources = 0
	}
}

func (d *Datapath) start() error {
	if err := attachment.CheckUplink(d.config.Uplink); err != nil {
		return err
	}
	if err := d.load(); err != nil {
		return err
	}
	if err := errors.Join(d.numbers.Read(), d.Rules.Read(), d.Translator.Read(), d.Steering.Read()); err != nil {
		return err
	}
	if err := errors.Join(d.Directory.Read(d.All()), d.Refresh()); err != nil {
		return err
	}
	return d.UpdateLinks()
}

// Close lets go of the data plane, which goes on running.
func (d *Datapath) Close() error {
	return errors.Join(d.CloseSamples(), d.objects.Close(), d.folder.Close())
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

// Verdicts returns how many packets met which end, by the verdict's name: "deliver_native",
// "drop_no_rule". All names are there, also those that no packet has met.
func (d *Datapath) Verdicts() (map[string]model.Counter, error) {
	return d.verdicts.Read(d.objects.Verdicts)
}

// LostDatagrams counts datagrams in fragments that were forgotten before their time, by why: for
// others of the same tenant, or another's.
func (d *Datapath) LostDatagrams() (map[string]uint64, error) {
	return abi.LostDatagrams(d.objects.LostDatagrams)
}

// SetHashKey sets the hash key of the pool, by which sessions are counted by bucket, and packets steered.
func (d *Datapath) SetHashKey(key flowhash.Key) {
	d.Tracker.SetHashKey(key)
	d.SetPoolKey(key)
}

// Seal is what the programs know packets by, in their control block, that a program of ours sends by the uplink: secret.
func (d *Datapath) Seal() (seal [2]uint32, err error) {
	var key bpf.AgentFlowhashKey
	if err := d.objects.HashKey.Get(&key); err != nil {
		return seal, fmt.Errorf("read hash key: %w", err)
	}
	return [2]uint32(key.Words[:2]), nil
}

// SetGeneration notes which generation the tables hold.
func (d *Datapath) SetGeneration(g model.Generation) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return bpf.ChangeSettings(&d.objects, func(s *bpf.AgentAgentSettings) { s.Generation = uint64(g) })
}

// Generation is what SetGeneration noted last, perhaps before a restart; 0 if never.
func (d *Datapath) Generation() (model.Generation, error) {
	var s bpf.AgentAgentSettings
	if err := d.objects.Settings.Get(&s); err != nil {
		return 0, fmt.Errorf("read settings: %w", err)
	}
	return model.Generation(s.Generation), nil
}
