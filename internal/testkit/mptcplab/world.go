package mptcplab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/weirlb/weir/internal/lab/mptcp"
	"github.com/weirlb/weir/internal/lab/netlab"
)

// Clients of a lab.
const (
	Modern      = "client1"
	NoTimestamp = "client2" // offers no TCP timestamps
)

// Bound is how long anything in a lab may take. A join that comes too early, or when its home dies, is sent again after 1, 3
// and 7 s.
const Bound = time.Minute

// World is a lab, a service, and clients with several paths.
type World struct {
	*netlab.Lab
	Service *mptcp.Service
	Muxes   int // that are there
	paths   map[string][]mptcp.Path
}

// Plan is that of a lab with both clients.
func Plan(name string, hosts int) netlab.Plan {
	return netlab.Plan{Name: name, Clients: 2, Muxes: 2, Hosts: hosts, Workloads: 2}
}

// New has a lab serve a service, and gives its clients so many paths. Connections join from those up to joined at once.
func New(ctx context.Context, lab *netlab.Lab, number byte, paths, joined int) (*World, error) {
	w := &World{Lab: lab, Muxes: len(lab.Of(netlab.Mux)), paths: map[string][]mptcp.Path{}, Service: &mptcp.Service{
		Name: fmt.Sprintf("multipath%d", number), Weight: map[string]int{}, Removed: map[string]bool{},
		VIPs: []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, number}), netip.MustParseAddr(fmt.Sprintf("2001:db8:113::%d", number))},
	}}
	if err := mptcp.Prepare(lab); err != nil {
		return nil, err
	}
	ns, err := lab.NS(NoTimestamp)
	if err != nil {
		return nil, err
	}
	if err := ns.Sysctl("net.ipv4.tcp_timestamps", "0"); err != nil {
		return nil, err
	}
	for _, client := range []string{Modern, NoTimestamp} {
		for path := 2; path <= paths; path++ {
			p, err := mptcp.AddPath(lab, client, path)
			if err != nil {
				return nil, err
			}
			w.paths[client] = append(w.paths[client], p)
			if path > joined {
				continue
			}
			if err := p.Join(); err != nil {
				return nil, err
			}
		}
	}
	return w, w.Service.Serve(ctx, lab, Bound)
}

// Path is one of both clients'.
func (w *World) Path(number int) []mptcp.Path {
	var all []mptcp.Path
	for _, client := range []string{Modern, NoTimestamp} {
		all = append(all, w.paths[client][number-2])
	}
	return all
}

// Addresses are those of a path of both clients.
func (w *World) Addresses(number int) (all []netip.Addr) {
	for _, p := range w.Path(number) {
		all = append(all, p.IPv4, p.IPv6)
	}
	return all
}

// Open opens so many connections from each client to each VIP, and waits until all have joined from path 2.
func (w *World) Open(ctx context.Context, each int, clients ...string) (*mptcp.Group, error) {
	g, err := mptcp.Open(ctx, w.Lab, each, time.Second/4, clients, w.Service.VIPs...)
	if err != nil {
		return nil, err
	}
	joined, err := g.WaitJoined(ctx, Bound, g.Len(), nil, w.Addresses(2)...)
	if err == nil && joined < g.Len() {
		err = fmt.Errorf("%d of %d connections have joined", joined, g.Len())
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// Cut has a client with timestamps download by two paths, of which one is cut.
func (w *World) Cut(ctx context.Context, from netip.AddrPort) (mptcp.Cut, error) {
	first, err := mptcp.FirstPath(w.Lab, Modern)
	if err != nil {
		return mptcp.Cut{}, err
	}
	return mptcp.CutUnderDownload(ctx, w.Lab, from, []mptcp.Path{first, w.paths[Modern][0]})
}

// apply applies the service to the muxes that are there.
func (w *World) apply(ctx context.Context) error { return w.Service.Apply(ctx, w.Lab, w.Muxes, Bound) }

// Refused is how many joins have come to servers that have not their connection.
func (w *World) Refused() (int, error) {
	counters, err := mptcp.Counters(w.Lab, mptcp.Servers(w.Lab)...)
	return counters[mptcp.JoinNoTokenFound], err
}

// Verdicts is how many packets of all hosts met each verdict.
func (w *World) Verdicts() (map[string]uint64, error) {
	all := map[string]uint64{}
	for _, n := range w.Of(netlab.Host) {
		verdicts, err := w.Lab.Verdicts(n.Name)
		if err != nil {
			return nil, err
		}
		for name, packets := range verdicts {
			all[name] += packets
		}
	}
	return all, nil
}
