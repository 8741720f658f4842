package mux

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf/link"

	"github.com/weirlb/weir/internal/datapath/mux/acl"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/datapath/mux/flow"
	"github.com/weirlb/weir/internal/datapath/mux/limit"
	"github.com/weirlb/weir/internal/datapath/mux/nat"
	"github.com/weirlb/weir/internal/datapath/mux/neighbor"
	"github.com/weirlb/weir/internal/datapath/mux/nexthop"
	"github.com/weirlb/weir/internal/datapath/mux/overlay"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/datapath/mux/share"
	"github.com/weirlb/weir/internal/datapath/mux/snat"
	"github.com/weirlb/weir/internal/datapath/mux/trace"
	"github.com/weirlb/weir/internal/datapath/mux/viprow"
	"github.com/weirlb/weir/internal/datapath/pin"
	"github.com/weirlb/weir/internal/model"
)

// Datapath is an open data plane. It loads, pins and attaches the programs; what it forwards by is up to its facets.
// Their methods may be called from several goroutines.
type Datapath struct {
	*endpoint.Services
	*acl.PrefixLists
	*pool.Pool
	*flow.Flows
	*share.Shares
	*endpoint.SYNCookies
	*snat.Ranges
	*overlay.Networks
	*nat.NAT
	*neighbor.Neighbors
	*SlowPath
	*Counters
	*trace.Tracer

	log      *slog.Logger
	tables   bpf.Tables
	programs bpf.Programs
	link     link.Link
	folder   *pin.Folder // nil: not attached
	mode     Mode
	sizes    bpf.Sizes

	mu          sync.Mutex // guards the below, and every write to a table
	endpoints   *endpoint.Table
	members     *pool.Members
	shares      *share.Table
	full        *nat.Table
	predecessor *predecessor // forwards until TakeOver; nil: we do
}

func newDatapath(sizes bpf.Sizes, log *slog.Logger) *Datapath {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	d := &Datapath{log: log, sizes: sizes}
	tables := &d.tables
	hops, tunnels, policers, row := nexthop.New(tables), nexthop.NewTunnels(), limit.New(tables), pool.NewTable(tables)
	flows := flow.New(tables, sizes, func() flow.View { return d.endpoints.FlowView() })
	rows := viprow.New(tables, sizes, flows, policers)
	d.endpoints = endpoint.New(endpoint.Parts{
		Tables: tables, Flows: flows, Lists: acl.New(tables, sizes), Policers: policers, Rows: rows,
		SNAT: snat.New(tables, sizes, rows, hops, tunnels), Hops: hops, Tunnels: tunnels, Pool: row,
	}, sizes, log)
	d.members, d.shares = pool.NewMembers(tables, hops), share.New(d.endpoints)
	d.full = nat.New(tables, sizes.NATBackends(), hops, tunnels)
	d.Services, d.SYNCookies = endpoint.NewServices(&d.mu, d.endpoints, d.members, d.full), endpoint.NewSYNCookies(&d.mu, d.endpoints)
	d.PrefixLists = acl.NewPrefixLists(&d.mu, d.endpoints.Lists)
	d.Pool = pool.New(&d.mu, row, d.members)
	d.Flows = flow.NewFlows(&d.mu, flows, endpoint.Marks{Table: d.endpoints}.Settle)
	d.Shares = share.NewShares(&d.mu, d.shares)
	d.Ranges = snat.NewRanges(&d.mu, d.endpoints.SNAT)
	d.Networks, d.NAT = overlay.New(&d.mu, tables, d.full), nat.NewNAT(&d.mu, d.full)
	d.Neighbors = neighbor.New(tables)
	d.SlowPath = &SlowPath{&d.mu, tables, row, d.endpoints}
	d.Counters = &Counters{tables}
	d.Tracer = trace.New(trace.Config{
		Tables: tables, Programs: &d.programs, Sizes: sizes, Link: func() link.Link { return d.link },
		Ready: d.owns, Lock: &d.mu, Endpoints: d.endpoints,
	})
	return d
}

// owns is an error for tables that do not forward yet.
func (d *Datapath) owns() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.predecessor != nil {
		return errors.New("the tables of another version forward yet: wait until this one has filled its own")
	}
	return nil
}

// Mode tells how the program is attached: "native" or "generic".
func (d *Datapath) Mode() string { return string(d.mode) }

// Close lets go of the data plane, which goes on forwarding.
func (d *Datapath) Close() error {
	var errs []error
	d.closeShared()
	errs = append(errs, d.Tracer.Close(), d.tables.Close(), d.programs.Close())
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

func (d *Datapath) closeShared() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endpoints.Rows.Index.Close()
	d.endpoints.SNAT.Close()
	d.endpoints.Lists.Close()
	d.endpoints.Policers.Close()
	d.full.Close()
}

// readLive restores what this process must know of adopted tables: which rows are in use and by
// whom.
func (d *Datapath) readLive() error {
	e := d.endpoints
	for _, adopt := range []func() error{
		e.Rows.Adopt, e.SNAT.Adopt, e.Adopt, e.Policers.Adopt, d.shares.Adopt, e.AdoptEndpointIndex, d.members.Adopt, d.full.Adopt,
		e.Hops.Read,
		d.Adopt,
	} {
		if err := adopt(); err != nil {
			return err
		}
	}
	return nil
}

// Endpoints lists the live endpoints, in order: until TakeOver, those of the predecessor.
func (d *Datapath) Endpoints() ([]model.EndpointKey, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.predecessor != nil {
		return slices.Clone(d.predecessor.endpoints), nil
	}
	return slices.SortedFunc(maps.Keys(d.endpoints.Live), model.EndpointKey.Compare), nil
}

// VIPs lists the live VIPs, in order: those with endpoints, and those that workloads leave as. Until
// TakeOver, the predecessor's.
func (d *Datapath) VIPs() ([]netip.Addr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.predecessor != nil {
		return slices.Clone(d.predecessor.vips), nil
	}
	return slices.SortedFunc(maps.Keys(d.endpoints.Rows.Live), netip.Addr.Compare), nil
}
