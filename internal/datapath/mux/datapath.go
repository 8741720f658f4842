package mux

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/weirlb/weir/internal/datapath/mux/alloc"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/pin"
	"github.com/weirlb/weir/internal/model"
)

// Datapath is an open data plane. Its methods may be called from several goroutines.
type Datapath struct {
	log      *slog.Logger
	tables   bpf.Tables
	programs bpf.Programs
	link     link.Link
	folder   *pin.Folder // nil: not attached
	mode     Mode
	sizes    bpf.Sizes
	sender   sender

	explainer explainer
	capturing sync.Mutex // held by Capture

	mu            sync.Mutex // guards the below, and every write to a table
	live          map[model.EndpointKey]*liveEndpoint
	bucketSlices  *alloc.Rows
	backendSlices *alloc.Rows
	ids           *alloc.IDs // of endpoint_counts
	vips          *vips
	index         *endpointIndex // nil until the first endpoint
	snat          *snat
	sources       *sources
	limits        limits
	shares        shares
	tenants       map[string]uint32 // indexes of tenant_usage
	weights       *weights          // nil: the tables have changed since
	flowLimit     uint32            // of a VIP that names none
	tick          time.Duration     // of the flow table's clock
	hops          *hops
	tunnels       *tunnels
	allPorts      int                // live endpoints on all ports
	hasSecrets    bool               // of SYN cookies
	members       bpf.MuxPoolMembers // as written
	predecessor   *predecessor       // forwards until TakeOver; nil: we do
}

func newDatapath(d bpf.Sizes, log *slog.Logger) *Datapath {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	tick, _ := bpf.FlowTick() // spec has told, if it fails
	return &Datapath{
		tick:          tick,
		log:           log,
		sizes:         d,
		live:          map[model.EndpointKey]*liveEndpoint{},
		bucketSlices:  alloc.NewRows("buckets", d.BucketRows),
		backendSlices: alloc.NewRows("backends", d.Backends),
		ids:           alloc.NewIDs("endpoints", d.Rows()),
		vips:          newVIPs(d.Rows()),
		flowLimit:     cmp.Or(d.FlowLimit, d.FlowSets*uint32(len(bpf.MuxFlowSet{}.Cells))/4),
		snat:          newSNAT(d.SNATVIPs, d.SNATOwnerRows()),
		sources:       newSources(d.Rows(), int(d.SourceRows())),
		tenants:       map[string]uint32{},
		hops:          newHops(),
		tunnels:       newTunnels(),
	}
}

// Mode tells how the program is attached: "native" or "generic".
func (d *Datapath) Mode() string { return string(d.mode) }

// Close lets go of the data plane, which goes on forwarding.
func (d *Datapath) Close() error {
	var errs []error
	d.closeShared()
	errs = append(errs, d.explainer.close(), d.tables.Close(), d.programs.Close(), d.sender.close())
	if d.link != nil {
		errs = append(errs, d.link.Close())
	}
	if d.folder != nil {
		errs = append(errs, d.folder.Close())
	}
	return errors.Join(errs...)
}

// Unload detaches the program and removes the tables: forwarding stops. It ends with Close.
func (d *Datapath) Unload() error {
	return errors.Join(remove(d.folder), d.Close())
}

// Unload removes the data plane that is pinned at pinPath; none there is no error.
func Unload(pinPath string) error {
	if _, err := os.Stat(pinPath); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	folder, err := pin.Open(pinPath)
	if err != nil {
		return fmt.Errorf("unload mux's data plane: %w", err)
	}
	return errors.Join(remove(folder), folder.Close())
}

// remove detaches first: a program without its tables' pins would forward on.
func remove(folder *pin.Folder) error {
	if attached, err := link.LoadPinnedLink(folder.Live(linkPin), nil); err == nil {
		defer attached.Close()
		if err := attached.Detach(); err != nil && !errors.Is(err, link.ErrNotSupported) {
			return fmt.Errorf("detach xdp: %w", err)
		}
	}
	return folder.Remove()
}
