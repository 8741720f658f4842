// Package neighbor has the mux answer ARP and NDP for the VIPs that managers give it leases of, and tells the neighbors of
// its segment when it takes one over.
//
//	manager ◀──RenewNeighbors── neighbor ──VIPs, end of the lease──▶ data plane: answers
//	        ──── lease ───────▶    ▲ └──── announcements, probes ──▶ segment
//	                               └────── what others claim ────── segment
//
// Invariants:
//   - the data plane has the VIPs of a lease before it has the lease;
//   - a VIP that another station has is not taken, and one that is held is defended (RFC 5227, section 2.4);
//   - VIPs that the mux does not forward for are not answered for.
package neighbor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/neighbor"
	"github.com/weirlb/weir/internal/segment"
	"github.com/weirlb/weir/internal/telemetry"
)

const (
	// renewTimeout bounds a request.
	renewTimeout = 250 * time.Millisecond
	// failuresToLeave are requests without a lease after which another manager is asked.
	failuresToLeave = 2
	// announcements are how often the neighbors are told of a VIP that was taken, and announceEvery how far apart.
	announcements = 3
	announceEvery = 300 * time.Millisecond
	// probeEvery is how far apart the probes for a VIP are that is to be taken.
	probeEvery = 250 * time.Millisecond
	// conflictTime is how long a VIP that another station has is not taken, and how far apart a VIP is defended.
	conflictTime = 10 * time.Second
	// claimsTold is of how many VIPs, that another station has, operators are told one by one in conflictTime.
	claimsTold = 16
)

// Datapath answers.
type Datapath interface {
	SetNeighbors([]netip.Addr) error
	SetNeighborLease(until time.Duration) error
}

// Segment is where it answers.
type Segment interface {
	Announce(netip.Addr, segment.MAC) error
	Probe(netip.Addr, segment.MAC) error
	SetAddresses([]netip.Addr) error
	Listen(context.Context, func(segment.Claim)) error
}

// Config configures a Neighbor.
type Config struct {
	Name     string // of the mux
	Datapath Datapath
	Segment  Segment
	MAC      func() segment.MAC // of the interface
	// Serving are the VIPs that the mux forwards for; false: it is to attract nothing.
	Serving func() (map[netip.Addr]bool, bool)
	Renew   func(context.Context, *weirv1.RenewNeighborsRequest) (*weirv1.RenewNeighborsResponse, error)
	Leave   func() // has the next request go to another manager
	Event   func(*weirv1.MuxEvent)
	Report  func()               // tells managers which VIPs are answered for
	Now     func() time.Duration // CLOCK_BOOTTIME, by which the data plane knows when a lease ends
	Log     *slog.Logger
}

// Neighbor keeps the mux's lease.
type Neighbor struct {
	Config

	mu        sync.Mutex
	holder    neighbor.Holder
	digest    uint64
	muxes     map[segment.MAC]bool // of the cluster
	held      []netip.Addr         // that the data plane answers for
	written   bool                 // it was told so
	mac       segment.MAC          // that the neighbors are told
	vips      map[netip.Addr]*vip
	lapsed    bool // there is no lease, and it was said
	failures  int  // of requests, in a row
	conflicts uint64
	claims    claims
	takeovers uint64
	failed    error // of the data plane or the segment; nil: it works
}

// vip is what is known of a VIP of the mux.
type vip struct {
	told     int           // announcements since it was taken
	next     time.Duration // when the next announcement, or probe, is due
	other    segment.MAC   // who has it too
	conflict time.Duration // when that was heard last; 0: never
	news     time.Duration // when operators were told of it last; 0: never
	defended time.Duration
}

// New returns one that has no lease.
func New(c Config) *Neighbor {
	return &Neighbor{Config: c, vips: map[netip.Addr]*vip{}, muxes: map[segment.MAC]bool{}}
}

// Run renews the lease until ctx ends. What the data plane answers for then, it answers for until the lease ends.
func (n *Neighbor) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return n.Segment.Listen(ctx, n.hear) })
	group.Go(func() error {
		for ctx.Err() == nil {
			began := n.Now()
			n.renew(ctx)
			for wait := n.step(); ; wait = n.step() {
				left := neighbor.Interval - (n.Now() - began)
				if left <= 0 || ctx.Err() != nil {
					break
				}
				sleep(ctx, min(wait, left))
			}
		}
		return nil
	})
	return group.Wait()
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// renew asks a manager for the next lease.
func (n *Neighbor) renew(ctx context.Context) {
	_, ready := n.Serving()
	n.mu.Lock()
	request := &weirv1.RenewNeighborsRequest{Name: n.Name, Ready: ready, Digest: n.digest}
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	sent := n.Now()
	response, err := n.Renew(ctx, request)
	if err != nil {
		if connect.CodeOf(err) == connect.CodeAborted {
			n.Log.Debug("wait for a lease of VIPs that are answered for", "err", err)
			return // the lease before runs on
		}
		if n.failures++; n.failures%failuresToLeave == 0 {
			n.Leave()
		}
		n.Log.Debug("renew the lease of VIPs that are answered for", "err", err)
		return
	}
	n.failures = 0
	n.mu.Lock()
	defer n.mu.Unlock()
	known := request.Digest != 0 && response.GetDigest() == request.Digest
	var vips []neighbor.Wait
	for _, v := range response.GetVips() {
		address, err := netip.ParseAddr(v.GetVip())
		if err != nil {
			n.Log.Warn("a manager names a VIP that is no address", "vip", v.GetVip())
			continue
		}
		vips = append(vips, neighbor.Wait{VIP: address, Wait: max(v.GetWait().AsDuration(), 0)})
	}
	if !known {
		n.setMuxes(response.GetMuxes())
	}
	lease := min(response.GetLease().AsDuration(), neighbor.Lease)
	n.digest = response.GetDigest()
	n.holder.Renew(vips[:min(len(vips), neighbor.MaxVIPs)], known, lease, sent, n.Now())
}

func (n *Neighbor) setMuxes(macs []string) {
	clear(n.muxes)
	for _, text := range macs {
		if mac, err := net.ParseMAC(text); err == nil && len(mac) == len(segment.MAC{}) {
			n.muxes[segment.MAC(mac)] = true
		}
	}
}

// step has the data plane answer for what is held now, and tells and asks the neighbors what is due. It returns after
// which time there is more to do.
func (n *Neighbor) step() time.Duration {
	serving, _ := n.Serving()
	n.mu.Lock()
	defer n.mu.Unlock()
	now, next := n.Now(), neighbor.Interval
	all := n.owned(serving)
	var owned, held, asked []netip.Addr
	for _, o := range all {
		owned = append(owned, o.address)
		switch o.state(n.vips[o.address], now, n.holder.Until) {
		case holds:
			held = append(held, o.address)
		case asks:
			asked = append(asked, o.address)
		case waits:
		}
	}
	n.set(owned, held, now)
	if mac := n.MAC(); mac != n.mac {
		n.mac = mac
		for _, address := range n.held { // it is news to the neighbors
			if v := n.vips[address]; v != nil {
				v.told, v.next = 0, 0
			}
		}
	}
	for _, address := range n.held {
		next = min(next, n.tell(address, n.vips[address], now))
	}
	for _, address := range asked {
		next = min(next, n.ask(address, n.vips[address], now))
	}
	return max(next, time.Millisecond)
}

// ownership is a VIP of the mux, and from when on it may answer for it.
type ownership struct {
	address netip.Addr
	from    time.Duration
}

// owned are the VIPs of the mux that it forwards for. What is known of others is forgotten.
func (n *Neighbor) owned(serving map[netip.Addr]bool) (all []ownership) {
	vips := make(map[netip.Addr]*vip, len(n.vips))
	n.holder.Owned(func(address netip.Addr, from time.Duration) {
		if !serving[address] {
			return
		}
		if vips[address] = n.vips[address]; vips[address] == nil {
			vips[address] = &vip{}
		}
		all = append(all, ownership{address, from})
	})
	n.vips = vips
	return all
}

// What the mux does with a VIP of its own.
type state int

const (
	holds state = iota // answers for it
	asks               // asks whether another station has it
	waits              // leaves it to another station
)

func (o ownership) state(v *vip, now, until time.Duration) state {
	refused := v.conflict != 0 && v.told == 0
	switch {
	case now >= until, refused && now < v.conflict+conflictTime:
		return waits
	case now < o.from, refused && now < v.conflict+conflictTime+neighbor.Lease:
		return asks
	}
	return holds
}

// set has the data plane answer for the VIPs until the lease ends. What goes, goes before the lease is longer.
func (n *Neighbor) set(owned, held []netip.Addr, now time.Duration) {
	err := n.Segment.SetAddresses(owned)
	written := n.written && slices.Equal(held, n.held)
	if !written { // at first there are those of the process before
		n.written = false // an error may leave half of it there
		failed := n.Datapath.SetNeighbors(held)
		if written = failed == nil; written {
			n.replace(held)
		}
		err = errors.Join(err, failed)
	}
	if written && n.holder.Until > 0 {
		err = errors.Join(err, n.Datapath.SetNeighborLease(n.holder.Until))
	}
	if err != nil && fmt.Sprint(err) != fmt.Sprint(n.failed) {
		n.Log.Error("answer for VIPs", "err", err)
	}
	n.failed = err
	if lapsed := len(owned) > 0 && now >= n.holder.Until; lapsed != n.lapsed {
		n.lapsed = lapsed
		if lapsed {
			n.Log.Warn("no manager renews the lease: ARP and NDP for VIPs are not answered, packets are forwarded")
		}
	}
}

// replace notes what the data plane answers for.
func (n *Neighbor) replace(held []netip.Addr) {
	for _, address := range held {
		if !slices.Contains(n.held, address) {
			n.Log.Info("this mux answers for a vip", "vip", address)
			n.vips[address].told, n.vips[address].next = 0, 0
			n.takeovers++
		}
	}
	for _, address := range n.held {
		if !slices.Contains(held, address) {
			n.Log.Info("this mux answers for a vip no more", "vip", address)
			if v := n.vips[address]; v != nil {
				v.told, v.next = 0, 0
			}
		}
	}
	if !slices.Equal(held, n.held) {
		n.Report()
	}
	n.held, n.written = held, true
}

// tell announces a VIP that was taken, and returns after which time it is to be told again.
func (n *Neighbor) tell(address netip.Addr, v *vip, now time.Duration) time.Duration {
	switch {
	case v == nil || v.told == announcements:
		return neighbor.Interval
	case v.told > 0 && now < v.next:
		return v.next - now
	}
	v.told, v.next = v.told+1, now+announceEvery
	if err := n.Segment.Announce(address, n.MAC()); err != nil {
		n.Log.Warn("announce a vip to its neighbors", "vip", address, "err", err)
	}
	return announceEvery
}

// ask probes for a VIP that is to be taken, and returns after which time it is to be asked for again.
func (n *Neighbor) ask(address netip.Addr, v *vip, now time.Duration) time.Duration {
	if now >= v.next {
		v.next = now + probeEvery
		if err := n.Segment.Probe(address, n.MAC()); err != nil {
			n.Log.Warn("ask the neighbors for a vip", "vip", address, "err", err)
		}
	}
	return v.next - now
}

// hear takes what another station says of an address.
func (n *Neighbor) hear(claim segment.Claim) {
	n.mu.Lock()
	defer n.mu.Unlock()
	v := n.vips[claim.Address]
	if v == nil || claim.MAC == n.MAC() || n.muxes[claim.MAC] {
		return
	}
	now := n.Now()
	news := v.news == 0 || now >= v.news+conflictTime // whoever it is: a station may send from any MAC
	answers := v.told > 0
	if answers && (v.defended == 0 || now >= v.defended+conflictTime) {
		v.defended = now
		if err := n.Segment.Announce(claim.Address, n.MAC()); err != nil {
			n.Log.Warn("defend a vip", "vip", claim.Address, "err", err)
		}
	}
	if v.other = claim.MAC; news || !answers {
		v.conflict = max(now, 1)
	}
	if !news {
		return
	}
	v.news = max(now, 1)
	n.conflicts++
	if !n.claims.tells(now, n.Log) {
		return
	}
	does := "the mux does not answer for it, and asks again every 10 s"
	if answers {
		does = "the mux goes on answering, and tells the neighbors so"
	}
	message := fmt.Sprintf("station %s claims the address: %s", net.HardwareAddr(claim.MAC[:]), does)
	n.Log.Warn("another station has the address of a vip", "vip", claim.Address, "neighbor", net.HardwareAddr(claim.MAC[:]))
	n.Event(&weirv1.MuxEvent{Vip: claim.Address.String(), Reason: reason.NeighborConflict, Message: message, Warning: true})
}

// claims bounds what a station that claims many VIPs has operators told.
type claims struct {
	since     time.Duration
	told, not int
}

// tells says whether operators are told of one more. How many they were not told of is said when they are told again.
func (c *claims) tells(now time.Duration, log *slog.Logger) bool {
	if now >= c.since+conflictTime {
		if c.not > 0 {
			log.Warn("other stations have the addresses of more vips than were named", "vips", c.not)
		}
		*c = claims{since: now}
	}
	if c.told == claimsTold {
		if c.not == 0 {
			log.Warn("other stations have the addresses of more vips, which are not named: weir describe node has all")
		}
		c.not++
		return false
	}
	c.told++
	return true
}

// Held are the VIPs that are answered for now, in order.
func (n *Neighbor) Held() []netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.Now() >= n.holder.Until {
		return nil
	}
	return slices.Clone(n.held)
}

// Warnings are for operators, one line each.
func (n *Neighbor) Warnings() (lines []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failed != nil {
		lines = append(lines, fmt.Sprintf("VIPs are not answered for as they should: %v", n.failed))
	}
	if n.lapsed {
		lines = append(lines, "no manager renews the lease: ARP and NDP for VIPs are not answered until one does")
	}
	now := n.Now()
	for _, address := range slices.SortedFunc(maps.Keys(n.vips), netip.Addr.Compare) {
		if v := n.vips[address]; v.conflict != 0 && now < v.conflict+2*conflictTime {
			lines = append(lines, fmt.Sprintf("station %s claims VIP %s too: look for it on the segment, and take the address from it",
				net.HardwareAddr(v.other[:]), address))
		}
	}
	return lines
}

// Sample puts the metrics of leases.
func (n *Neighbor) Sample(to *telemetry.Sample) {
	held := len(n.Held())
	n.mu.Lock()
	defer n.mu.Unlock()
	telemetry.Put(to, "weir_mux_neighbor_vips", held)
	telemetry.Put(to, "weir_mux_neighbor_takeovers_total", n.takeovers)
	telemetry.Put(to, "weir_mux_neighbor_conflicts_total", n.conflicts)
	telemetry.Put(to, "weir_mux_neighbor_lease_seconds", max((n.holder.Until-n.Now()).Seconds(), 0))
}
