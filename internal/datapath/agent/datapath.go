package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
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
	config  Config
	folder  *pin.Folder
	objects bpf.AgentObjects

	cookieScale    uint32 // of Config.CookieTick
	cannotTakeOver error  // why the kernel makes no sockets of SYN cookies; nil: it does

	verdicts abi.Verdicts

	sweeping sync.Mutex // over a sweep of source NAT's tables; taken after mu, where both are

	mu    sync.Mutex
	rules map[model.HostBackendKey]model.HostBackend // as in nat_rules, and what they come from
	key   *flowhash.Key                              // of the pool; nil: not known yet

	refused map[netip.Addr][quotaTables]uint64 // what the counts said at the last sweep

	snat    map[netip.Addr]*snatRow // by workload, as the tables hold them
	excepts map[bpf.AgentSnatExempt]uint8
	tenants tenants
	tunnels map[bpf.AgentAddress]uint8 // that an earlier process had, until SetSNAT

	snatWeights map[uint32]int                // that the tables of source NAT were divided by, by tenant
	snatRefused map[uint32][snatTables]uint32 // what tenants' counts said at the last sweep
	snatOff     map[snatCount]int32           // counts that were off at the last sweep
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
	scale, err := cookieScale(config.CookieTick)
	if err != nil {
		return nil, fmt.Errorf("set the cookie tick: %w", err)
	}
	folder, err := pin.Open(config.PinPath)
	if err != nil {
		return nil, err
	}
	d := &Datapath{config: config, folder: folder, cookieScale: scale, cannotTakeOver: kernelTakesOver()}
	if err := d.start(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Datapath) start() error {
	uplink, err := findUplink(d.config.Uplink)
	if err != nil {
		return err
	}
	if err := d.load(); err != nil {
		return err
	}
	if err := errors.Join(d.readTenants(), d.readRules(), d.readSNAT()); err != nil {
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
