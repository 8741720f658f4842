package netlink

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Discard has the kernel drop what comes in by an interface for prefixes that this machine announces
// and that is left to the kernel: packets to a VIP's other ports, its ICMP and fragments. On a machine
// that forwards they would go back to the router by the default route, and round until their TTL ends.
//
// A rule for the interface leads to a table of blackhole routes, which outlive the process as the
// announcement does. Packets from the machine itself, and to its own addresses, do not meet them.
type Discard struct {
	requests *vnl.Handle
	log      *slog.Logger
	name     string // of the interface
	table    int

	mu    sync.Mutex
	ruled bool // the rules stand
	held  map[netip.Prefix]bool
}

const (
	// A table for each interface: a hash of its name is added.
	discardTables = 0x77000000
	// Behind the machine's own addresses, before all else.
	discardPriority = 100
)

var families = []int{vnl.FAMILY_V4, vnl.FAMILY_V6}

// NewDiscard takes over what an earlier process left for the interface. It changes nothing.
func NewDiscard(name string, log *slog.Logger) (*Discard, error) {
	requests, err := vnl.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	hash := fnv.New32a()
	hash.Write([]byte(name))
	d := &Discard{requests: requests, log: log, name: name, table: discardTables + int(hash.Sum32()&0xffffff)}
	if d.held, err = d.read(); err != nil {
		requests.Close()
		return nil, fmt.Errorf("read what is discarded on %s: %w", name, err)
	}
	return d, nil
}

func (d *Discard) read() (map[netip.Prefix]bool, error) {
	there := map[netip.Prefix]bool{}
	for _, family := range families {
		routes, err := retry(func() ([]vnl.Route, error) {
			return d.requests.RouteListFiltered(family, &vnl.Route{Table: d.table}, vnl.RT_FILTER_TABLE)
		})
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			if address, ok := netip.AddrFromSlice(r.Dst.IP); ok {
				ones, _ := r.Dst.Mask.Size()
				there[netip.PrefixFrom(address.Unmap(), ones)] = true
			}
		}
	}
	return there, nil
}

// Close leaves what is discarded as it is.
func (d *Discard) Close() { d.requests.Close() }

// Set makes prefixes all that is discarded. None removes the rules too.
func (d *Discard) Set(prefixes []netip.Prefix) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.set(prefixes)
}

// keepEvery is how often Keep looks.
const keepEvery = 30 * time.Second

// Keep has what is set stand until ctx ends: others on the machine, as systemd-networkd when it starts, remove rules and
// routes that are not theirs.
func (d *Discard) Keep(ctx context.Context) error {
	ticker := time.NewTicker(keepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if lost, err := d.reconcile(); err != nil {
				d.log.Warn("can't look whether what is not balanced is still discarded", "interface", d.name, "err", err)
			} else if lost > 0 {
				d.log.Warn(fmt.Sprintf("somebody removed %d routes of table %d, by which the kernel discards what is not balanced: "+
					"they are there again", lost, d.table), "interface", d.name)
			}
		}
	}
}

// reconcile adds what is set and is not there, and says how many routes were not.
func (d *Discard) reconcile() (lost int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	wanted := slices.Collect(maps.Keys(d.held))
	if len(wanted) == 0 {
		return 0, nil
	}
	there, err := d.read()
	if err != nil {
		return 0, err
	}
	for _, p := range wanted {
		if !there[p] {
			lost++
			delete(d.held, p)
		}
	}
	d.ruled = false
	err = d.set(wanted)
	for _, p := range wanted { // what failed is set again the next time
		d.held[p] = true
	}
	return lost, err
}

// set is Set. The lock is held.
func (d *Discard) set(prefixes []netip.Prefix) error {
	var errs []error
	if len(prefixes) > 0 && !d.ruled {
		errs = append(errs, d.rules(d.requests.RuleAdd, unix.EEXIST))
	}
	wanted := make(map[netip.Prefix]bool, len(prefixes))
	for _, p := range prefixes {
		wanted[p] = true
		if !d.held[p] {
			errs = append(errs, d.change(p, d.requests.RouteReplace))
		}
	}
	for p := range d.held {
		if !wanted[p] {
			errs = append(errs, d.change(p, d.requests.RouteDel))
		}
	}
	if len(prefixes) == 0 {
		errs = append(errs, d.rules(d.requests.RuleDel, unix.ENOENT))
	}
	d.ruled = len(prefixes) > 0 && !slices.ContainsFunc(errs, func(err error) bool { return err != nil })
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("discard on %s what is not balanced: %w", d.name, err)
	}
	return nil
}

// rules adds or removes the rules; done is the error that says that there is nothing to do.
func (d *Discard) rules(change func(*vnl.Rule) error, done error) error {
	for _, family := range families {
		rule := vnl.NewRule()
		rule.Family, rule.IifName, rule.Table, rule.Priority = family, d.name, d.table, discardPriority
		if err := change(rule); err != nil && !errors.Is(err, done) {
			return fmt.Errorf("change the rule of family %d: %w", family, err)
		}
	}
	return nil
}

func (d *Discard) change(p netip.Prefix, change func(*vnl.Route) error) error {
	err := change(&vnl.Route{
		Type: unix.RTN_BLACKHOLE, Table: d.table,
		Dst: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
	})
	if err != nil && !errors.Is(err, unix.ESRCH) { // gone already
		return fmt.Errorf("change the route of %s: %w", p, err)
	}
	if d.held[p] {
		delete(d.held, p)
	} else {
		d.held[p] = true
	}
	return nil
}
