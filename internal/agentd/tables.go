package agentd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/netlink"
	"github.com/weirlb/weir/internal/rpc"
)

// tables is what the manager wants of this host, and how far the data plane follows.
type tables struct {
	log       *slog.Logger
	datapath  Datapath
	workloads Workloads
	uplink    []netip.Addr   // its addresses, as the manager knows them
	native    []netip.Prefix // other addresses of the host that may be workloads

	mu       sync.Mutex
	backends map[model.HostBackendKey]model.HostBackend // wanted
	muxes    []netip.Prefix                             // wanted; nil before the first message
	wanted   model.Generation                           // newest that arrived; 0 before the first message
	running  model.Generation                           // newest that the data plane holds whole
	changes  uint64                                     // how often the data plane was
	stale    bool                                       // it may hold something else than backends
	rejected *weirv1.Rejection                          // newest that was refused; nil: none since running
	missing  []string                                   // backends that are not on this host, a line each
	absent   map[netip.Addr]string                      // the same by address
	located  map[netip.Addr]bool                        // workloads that are on this host
	listed   []netip.Addr                               // workloads that leave as VIPs, in order
	lost     string                                     // why workloads can't be found or reached
}

// standing is how the tables stand, for a report.
type standing struct {
	running   model.Generation
	changes   uint64
	rejection *weirv1.Rejection
	warnings  []string
}

// newTables begins with what the data plane holds from before a restart.
func newTables(config Config) (*tables, error) {
	running, err := config.Datapath.Generation()
	if err != nil {
		return nil, err
	}
	t := &tables{
		log: config.Log, datapath: config.Datapath, workloads: config.Workloads, running: running,
		uplink: config.Addresses, native: config.Native,
		backends: make(map[model.HostBackendKey]model.HostBackend, len(config.Live)),
	}
	maps.Copy(t.backends, config.Live)
	return t, nil
}

// apply takes one step of the manager and returns all backends that are wanted after it.
func (t *tables) apply(update rpc.HostUpdate) []model.HostBackend {
	t.mu.Lock()
	defer t.mu.Unlock()
	whole := update.Snapshot || t.stale
	quiet := len(update.Backends)+len(update.Removed) == 0 && slices.Equal(t.muxes, update.Muxes)
	if update.Snapshot {
		clear(t.backends)
	}
	if update.HashKey != (flowhash.Key{}) {
		t.datapath.SetHashKey(update.HashKey)
	}
	for _, b := range update.Backends {
		t.backends[b.Key()] = b
	}
	for _, key := range update.Removed {
		delete(t.backends, key)
	}
	t.muxes, t.wanted = update.Muxes, update.Generation
	switch {
	case whole:
		t.settle(t.replace())
	case quiet: // others' business
		t.settle(t.datapath.SetGeneration(t.wanted))
	default:
		t.settle(t.change(update))
	}
	return slices.Collect(maps.Values(t.backends))
}

// retry brings the data plane to what is wanted, if it refused before.
func (t *tables) retry() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost != "" {
		t.refresh()
	}
	if t.stale {
		t.settle(t.replace())
	}
}

// reject notes that a generation can't even be read.
func (t *tables) reject(generation model.Generation, reason error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rejected = &weirv1.Rejection{Generation: uint64(generation), Reason: reason.Error()}
}

// list notes which workloads leave as VIPs: they must be found too.
func (t *tables) list(addresses []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.SortFunc(addresses, netip.Addr.Compare)
	if slices.Equal(addresses, t.listed) {
		return
	}
	t.listed = addresses
	t.refresh()
}

// locate looks anew where the uplink and the workloads are.
func (t *tables) locate() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refresh()
}

func (t *tables) standing() standing {
	t.mu.Lock()
	defer t.mu.Unlock()
	warnings := slices.Clone(t.missing)
	if t.lost != "" {
		warnings = append(warnings, t.lost)
	}
	return standing{running: t.running, changes: t.changes, rejection: t.rejected, warnings: warnings}
}

// refusal is why the newest step did not settle; nil: it did.
func (t *tables) refusal() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.stale {
		return nil
	}
	return errors.New(t.rejected.GetReason())
}

// replace makes the data plane hold what is wanted and nothing else.
func (t *tables) replace() error {
	return t.program(func() error { return t.datapath.Replace(slices.Collect(maps.Values(t.backends))) })
}

func (t *tables) change(update rpc.HostUpdate) error {
	return t.program(func() error { return t.datapath.Apply(update.Backends, update.Removed) })
}

// program changes the data plane in the order that lets no packet of a new backend be lost:
// who may send, where the workloads are, then the rules.
func (t *tables) program(rules func() error) error {
	t.changes++
	if err := t.datapath.SetMuxes(t.muxes); err != nil {
		return err
	}
	t.follow(t.find())
	if err := rules(); err != nil {
		return err
	}
	return t.datapath.SetGeneration(t.wanted)
}

// settle notes how bringing the data plane to the wanted generation ended.
func (t *tables) settle(err error) {
	if err != nil {
		if t.rejected.GetReason() != err.Error() {
			t.log.Error("generation refused", "generation", t.wanted, "err", err)
		}
		t.stale, t.rejected = true, &weirv1.Rejection{Generation: uint64(t.wanted), Reason: err.Error()}
		return
	}
	level := slog.LevelDebug
	if t.stale {
		level = slog.LevelInfo
	}
	if t.stale || t.running != t.wanted {
		t.log.Log(context.Background(), level, "generation runs", "generation", t.wanted, "backends", len(t.backends), "muxes", len(t.muxes))
	}
	t.running, t.stale, t.rejected = t.wanted, false, nil
}

// refresh follows a change of the host's links, addresses or routes.
func (t *tables) refresh() {
	err := t.datapath.Refresh()
	if err == nil {
		err = t.find()
	}
	t.follow(err)
}

// find tells the data plane where the workloads of all wanted backends live. What it can't find
// is a warning, not a refusal: a container that is down must not hold up the others.
func (t *tables) find() error {
	addresses := make(map[netip.Addr]bool, len(t.backends))
	for _, b := range t.backends {
		addresses[b.Backend.Addr()] = true
	}
	for _, a := range t.listed {
		addresses[a] = true
	}
	refused := map[netip.Addr]string{}
	for a := range addresses {
		if reason := model.Routable(a); reason != "" {
			refused[a] = fmt.Sprintf("backend %s is no workload: %s", a, reason)
			delete(addresses, a)
		}
	}
	interfaces, missing, err := t.workloads.Locate(slices.SortedFunc(maps.Keys(addresses), netip.Addr.Compare))
	if err != nil {
		return err
	}
	for a, at := range interfaces {
		if at == netlink.Native && !t.mayBeNative(a) {
			refused[a] = fmt.Sprintf("backend %s is an address of this host itself, and not in --native-prefixes", a)
			delete(interfaces, a)
		}
	}
	t.absent, t.located = maps.Clone(refused), make(map[netip.Addr]bool, len(interfaces))
	maps.Copy(t.absent, missing)
	for a := range interfaces {
		t.located[a] = true
	}
	t.missing = lines(t.absent)
	return t.datapath.SetWorkloads(interfaces, slices.SortedFunc(maps.Keys(refused), netip.Addr.Compare))
}

// mayBeNative says whether an address of the host itself may be a workload: one that the manager knows to be the host's, so
// that it has decided whose backend it may be, or one that the host's configuration permits. Of any other, as of a management
// interface or a bridge, the manager can't tell that it is the host's. Whose VIP it is does not matter: tables from before a
// restart don't tell.
func (t *tables) mayBeNative(address netip.Addr) bool {
	return slices.Contains(t.uplink, address) ||
		slices.ContainsFunc(t.native, func(p netip.Prefix) bool { return p.Contains(address) })
}

// unreachable says why a backend must not be asked how it is, or nothing: a check goes to a workload of this host and
// nowhere else, whoever wrote its address.
func (t *tables) unreachable(address netip.Addr) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch reason, absent := t.absent[address]; {
	case absent:
		return errors.New(reason)
	case !t.located[address]:
		return fmt.Errorf("backend %s is not found on this host yet", address)
	}
	return nil
}

// within runs probe for backends that live on this host.
func (t *tables) within(probe Probe) Probe {
	return func(ctx context.Context, backend model.HostBackend) error {
		if err := t.unreachable(backend.Backend.Addr()); err != nil {
			return err
		}
		return probe(ctx, backend)
	}
}

// follow notes whether the host's uplink and workloads could be followed; if not, retry tries again.
func (t *tables) follow(err error) {
	lost := ""
	if err != nil {
		lost = fmt.Sprintf("can't follow the host's interfaces, retrying: %v", err)
	}
	if lost != t.lost && lost != "" {
		t.log.Warn("can't follow the host's interfaces, retrying", "err", err)
	}
	t.lost = lost
}

func lines(missing map[netip.Addr]string) []string {
	sorted := make([]string, 0, len(missing))
	for _, address := range slices.SortedFunc(maps.Keys(missing), netip.Addr.Compare) {
		sorted = append(sorted, missing[address])
	}
	return sorted
}
