package mux

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/datapath/mux/flow"
	"github.com/weirlb/weir/internal/datapath/mux/overlay"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/datapath/mux/snat"
	"github.com/weirlb/weir/internal/datapath/pin"
	"github.com/weirlb/weir/internal/model"
)

// ErrNotLoaded is the error of Inspect when nothing is pinned.
var ErrNotLoaded = errors.New("no data plane is loaded")

// Status is what the pinned tables hold.
type Status struct {
	Interface  string
	Mode       Mode
	Settings   pool.Settings
	Generation model.Generation
	Endpoints  []EndpointStatus // in order
	SNAT       []snat.Status    // by VIP
	Overlay    overlay.Status
	Verdicts   map[string]model.Counter
}

// EndpointStatus is one live endpoint.
type EndpointStatus struct {
	Key      model.EndpointKey
	Counter  model.Counter
	Buckets  int
	Moving   int // of the buckets, those that name a previous backend too
	Settings endpoint.Settings
	Flows    flow.Usage      // of the VIP, all its endpoints together
	Backends []BackendStatus // by slot
	// Digest is of all that the pool must agree on: buckets, the slots they left, backends, settings.
	Digest string
}

// BackendStatus is one live backend.
type BackendStatus struct {
	Slot    model.Slot
	Tunnel  netip.Addr
	Down    bool
	Buckets int           // how many name it; 0 drains
	NextHop model.NextHop // zero: not resolved
}

// Inspect reads the tables pinned at pinPath beside the process that runs them.
func Inspect(pinPath string) (*Status, error) {
	live := pin.Live(pinPath, "")
	if _, err := os.Stat(live); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("inspect %s: %w", pinPath, ErrNotLoaded)
	}
	spec, err := bpf.LoadMux()
	if err != nil {
		return nil, fmt.Errorf("read mux program: %w", err)
	}
	t, err := bpf.OpenTables(live, spec, false, ebpf.LoadPinOptions{ReadOnly: true})
	if errors.Is(err, bpf.ErrLayout) {
		return nil, fmt.Errorf("inspect %s: %w: ask the weir-mux of the version that runs", pinPath, err)
	}
	if err != nil {
		return nil, fmt.Errorf("inspect %s: %w", pinPath, err)
	}
	defer t.Close()
	if t.VerdictNames, err = abi.VerdictsOf(spec); err != nil {
		return nil, err
	}
	s, err := status(&t)
	if err != nil {
		return nil, fmt.Errorf("inspect %s: %w", pinPath, err)
	}
	s.Interface, s.Mode, err = pinnedAttachment(pinPath)
	return s, err
}

// AttachedTo is the interface that the program pinned at pinPath is attached to, whatever its tables are.
func AttachedTo(pinPath string) (string, error) {
	iface, _, err := pinnedAttachment(pinPath)
	return iface, err
}

func pinnedAttachment(pinPath string) (iface string, mode Mode, err error) {
	attached, err := link.LoadPinnedLink(pin.Live(pinPath, linkPin), nil)
	if err != nil {
		return "", "", fmt.Errorf("inspect %s: open attachment: %w", pinPath, err)
	}
	defer attached.Close()
	return attachment(attached)
}

func status(t *bpf.Tables) (*Status, error) {
	row, err := pool.ReadRow(t)
	if err != nil {
		return nil, err
	}
	s := &Status{Settings: pool.FromRow(row), Generation: model.Generation(row.Generation)}
	if s.Verdicts, err = t.VerdictNames.Read(t.Verdicts); err != nil {
		return nil, err
	}
	err = endpoint.Each(t, func(key model.EndpointKey, row bpf.MuxEndpoint) error {
		e, err := endpointStatus(t, key, row)
		s.Endpoints = append(s.Endpoints, e)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(s.Endpoints, func(a, b EndpointStatus) int { return a.Key.Compare(b.Key) })
	if s.SNAT, err = snat.ReadStatus(t); err != nil {
		return nil, err
	}
	s.Overlay, err = overlay.ReadStatus(t)
	return s, err
}

func endpointStatus(t *bpf.Tables, key model.EndpointKey, row bpf.MuxEndpoint) (e EndpointStatus, err error) {
	pair := bpf.UnpackSlices(row.Slices)
	e.Key = key
	if e.Counter, err = abi.Counter(t.EndpointCounts, row.Id); err != nil {
		return e, fmt.Errorf("read counter of endpoint %s: %w", key, err)
	}
	buckets, previous, err := endpoint.ReadBuckets(t, pair)
	if err != nil {
		return e, err
	}
	e.Buckets = len(buckets)
	for _, slot := range previous {
		if slot != 0 {
			e.Moving++
		}
	}
	tick, err := bpf.FlowTick()
	if err != nil {
		return e, err
	}
	var usage bpf.MuxFlowUsage
	if err := t.VIPUsage.Lookup(row.Vip, &usage); err != nil {
		return e, fmt.Errorf("read row %d of vip_usage: %w", row.Vip, err)
	}
	e.Flows = flow.Usage{Untrusted: usage.Cells[0], Trusted: usage.Cells[1]}
	e.Settings = endpoint.ReadSettings(row, tick)
	shares := map[model.Slot]int{}
	for _, slot := range buckets {
		shares[slot]++
	}
	rows, err := endpoint.ReadBackends(t, pair.Backends)
	if err != nil {
		return e, err
	}
	for slot, row := range rows {
		var hop bpf.MuxNextHop
		if err := t.NextHops.Lookup(row.NextHop, &hop); err != nil {
			return e, fmt.Errorf("read row %d of next_hops: %w", row.NextHop, err)
		}
		b := endpoint.FromBackend(slot, row)
		e.Backends = append(e.Backends, BackendStatus{
			Slot: slot, Tunnel: b.Tunnel, Down: b.Down, Buckets: shares[slot], NextHop: bpf.FromNextHop(hop),
		})
	}
	slices.SortFunc(e.Backends, func(a, b BackendStatus) int { return int(a.Slot) - int(b.Slot) })
	e.Digest = e.digest(buckets, previous)
	return e, nil
}

func (e EndpointStatus) digest(buckets, previous []model.Slot) string {
	hash, settings := sha256.New(), e.Settings
	settings.FlowLimit = 0 // by default a share of this mux's own table
	fmt.Fprintln(hash, e.Key, settings, buckets, previous)
	for _, b := range e.Backends {
		fmt.Fprintln(hash, b.Slot, b.Tunnel, b.Down)
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}
