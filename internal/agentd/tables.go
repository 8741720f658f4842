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
	"github.com/weirlb/weir/internal/agentd/healthcheck"
	"github.com/weirlb/weir/internal/agentd/overlay"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
	"github.com/weirlb/weir/internal/netlink"
	"github.com/weirlb/weir/internal/wire"
)

// tables keeps the data plane at the desired state of this host.
type tables struct {
	log       *slog.Logger
	datapath  Datapath
	workloads Workloads
	networks  *overlay.Controller
	uplink    []netip.Addr   // the addresses that the host is registered with
	native    []netip.Prefix // other addresses of the host that may be workloads

	mu       sync.Mutex
	backends map[model.HostBackendKey]model.HostBackend // wanted
	muxes    []netip.Prefix                             // wanted; nil before the first message
	steered  map[netip.Addr]steering.VIP                // wanted: VIPs that switches hold
	steerDue bool                                       // the data plane may differ from steered, but for what it has no room for
	refused  []steering.Refusal                         // of steered, what it has no room for
	wanted   model.Generation                           // newest that arrived; 0 before the first message
	running  model.Generation                           // newest that is applied completely
	changes  uint64                                     // of the data plane so far
	stale    bool                                       // the data plane may differ from backends
	rejected *weirv1.Rejection                          // newest that was rejected; nil: none since running
	missing  []string                                   // backends that are not on this host, a line each
	absent   map[netip.Addr]string                      // the same by address
	located  map[netip.Addr]int                         // the interfaces of workloads that are on this host
	listed   []netip.Addr                               // workloads with source NAT, in order
	lost     string                                     // why workloads can't be found or reached
}

// standing is the state of the tables for a report.
type standing struct {
	running   model.Generation
	changes   uint64
	rejection *weirv1.Rejection
	refused   []steering.Refusal // VIPs that are not steered as of running
	warnings  []string
}

// newTables adopts the state of the data plane.
func newTables(config Config) (*tables, error) {
	running, err := config.Datapath.Generation()
	if err != nil {
		return nil, err
	}
	t := &tables{
		log: config.Log, datapath: config.Datapath, workloads: config.Workloads, networks: config.Networks, running: running,
		uplink: config.Addresses, native: config.Native,
		backends: make(map[model.HostBackendKey]model.HostBackend, len(config.Live)),
	}
	maps.Copy(t.backends, config.Live)
	return t, nil
}

// steer changes which VIPs switches hold, for apply to follow. It refuses what can't follow on what the host was told.
func (t *tables) steer(update wire.HostUpdate) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.steered
	if update.Snapshot {
		before = nil
	}
	after, err := steering.Apply(before, update.Steering)
	if err != nil {
		return err
	}
	t.steered = after
	t.steerDue = t.steerDue || update.Snapshot || !update.Steering.IsEmpty()
	return nil
}

// apply applies an update and returns all backends that are desired after it.
func (t *tables) apply(update wire.HostUpdate) []model.HostBackend {
	t.mu.Lock()
	defer t.mu.Unlock()
	whole := update.Snapshot || t.stale
	quiet := !t.networks.Note(update.Networks, update.SYNSecrets, update.Snapshot) && len(update.Backends)+len(update.Removed) == 0 &&
		update.Steering.IsEmpty() && slices.Equal(t.muxes, update.Muxes)
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

// retry applies the desired state again, if that failed before.
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

// reject records a generation that could not be decoded.
func (t *tables) reject(generation model.Generation, reason error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rejected = &weirv1.Rejection{Generation: uint64(generation), Reason: reason.Error()}
}

// list sets the workloads with source NAT, which must be located too.
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

// locate locates the uplink and the workloads again.
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
	if len(t.refused) > 0 {
		warnings = append(warnings, (&steering.RefusedError{VIPs: t.refused}).Error())
	}
	return standing{running: t.running, changes: t.changes, rejection: t.rejected, refused: t.refused, warnings: warnings}
}

// refusal is why the newest update was rejected; nil: it was applied.
func (t *tables) refusal() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.stale {
		return nil
	}
	return errors.New(t.rejected.GetReason())
}

// replace makes the data plane hold exactly the desired state.
func (t *tables) replace() error {
	return t.program(func() error { return t.datapath.Replace(slices.Collect(maps.Values(t.backends))) })
}

func (t *tables) change(update wire.HostUpdate) error {
	return t.program(func() error { return t.datapath.Apply(update.Backends, update.Removed) })
}

// program writes the muxes, then the workloads' interfaces, then the rules, then what switches bring, then what concerns
// virtual networks: in this order no packet of a new backend is lost. What is refused of one does not stop the others.
func (t *tables) program(rules func() error) error {
	t.changes++
	if err := t.datapath.SetMuxes(t.muxes); err != nil {
		return err
	}
	t.follow(t.find())
	if err := errors.Join(rules(), t.programSteering(), t.programNetworks()); err != nil {
		return err
	}
	return t.datapath.SetGeneration(t.wanted)
}

// programSteering has the data plane steer what switches bring. VIPs that there is no room for are reported, each by itself:
// they reject no generation, and are tried again when something changes.
func (t *tables) programSteering() error {
	if !t.steerDue {
		return nil
	}
	err := t.datapath.Steer(slices.Collect(maps.Values(t.steered)))
	var refused *steering.RefusedError
	if err != nil && !errors.As(err, &refused) {
		return err
	}
	before := t.refused
	if t.steerDue, t.refused = false, nil; refused != nil {
		t.refused = refused.VIPs
	}
	if !slices.Equal(before, t.refused) && refused != nil {
		t.log.Warn("there is no room to steer VIPs in switches", "vips", len(t.refused), "err", refused)
	}
	return nil
}

func (t *tables) programNetworks() error {
	return t.networks.Program(overlay.Host{Backends: t.backends, Interfaces: t.located, Muxes: t.muxes})
}

// settle records the result of applying the wanted generation.
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

// refresh handles a change of the host's links, addresses or routes.
func (t *tables) refresh() {
	err := t.datapath.Refresh()
	if err == nil {
		err = t.find()
	}
	if err == nil {
		err = t.programNetworks()
	}
	t.follow(err)
}

// find sets the interfaces of all desired backends' workloads. A missing one is a warning, not a rejection: a container that
// is down must not block the others.
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
	t.absent, t.located = maps.Clone(refused), interfaces
	maps.Copy(t.absent, missing)
	t.missing = lines(t.absent)
	return t.datapath.SetWorkloads(interfaces, slices.SortedFunc(maps.Keys(refused), netip.Addr.Compare))
}

// mayBeNative says whether an address of the host itself may be a workload: a registered one, for which the manager has
// checked whose backend it may be, or one that the host's configuration permits. The manager can't tell that any other, as
// that of a management interface or a bridge, is the host's. The VIP's tenant does not matter: tables from before a restart
// do not name it.
func (t *tables) mayBeNative(address netip.Addr) bool {
	return slices.Contains(t.uplink, address) ||
		slices.ContainsFunc(t.native, func(p netip.Prefix) bool { return p.Contains(address) })
}

// nativeBackends are those of TCP that the host's own stack serves.
func (t *tables) nativeBackends() (all []model.HostBackend) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.backends {
		at, found := t.located[b.Backend.Addr()]
		if found && at == netlink.Native && b.Endpoint.Protocol == model.TCP && b.SYNCookies == model.SYNCookiesAuto {
			all = append(all, b)
		}
	}
	return all
}

// unreachable says why a backend must not be checked, or nothing: checks go to workloads of this host alone, whatever
// address a VIP names.
func (t *tables) unreachable(address netip.Addr) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	reason, absent := t.absent[address]
	_, located := t.located[address]
	switch {
	case absent:
		return errors.New(reason)
	case !located:
		return fmt.Errorf("backend %s is not found on this host yet", address)
	}
	return nil
}

// within runs probe for backends that live on this host.
func (t *tables) within(probe healthcheck.Probe) healthcheck.Probe {
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
