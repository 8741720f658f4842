package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weirlb/weir/internal/datapath/agent"
	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/hardware/xdp"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
)

const (
	loadedVIPs = 10 // and one more that is pinged, as in the paper
	buckets    = 256
	mtu        = 1500
	slot       = 1

	vipPort, dipPort = 80, 8080
)

var (
	firstVIP = netip.MustParseAddr("203.0.113.1")
	pinged   = netip.MustParseAddr("203.0.113.11")
	client   = netip.MustParseAddr("198.51.100.7")
	hostDIP  = netip.MustParseAddr("10.79.3.2")
	sinkDIP  = netip.MustParseAddr("10.79.9.9") // of the loaded VIPs: the network counts and drops what goes there
	hashKey  = flowhash.Key{1, 2, 3}
)

// box is what packets to VIPs go by: the mux or the switch.
type box struct {
	name      string
	ns        *netns.NS
	port      string // its interface, and that of the network to it
	near, own netip.Addr
	link      netlink.LinkAttrs // of the network
	threads   []int             // of the kernel, that take what comes to it
	forwarded func() (uint64, error)
	isFull    bool // what can be sent is more than it takes
}

// world is a network with clients, a mux, a switch and a host. What the network gets of the mux and the switch for the sink ends
// there.
//
//	                     ┌── 10.79.1.2 mux
//	load, client ── network ── 10.79.2.2 switch
//	                     └── 10.79.3.2 host, agent
type world struct {
	network, host *netns.NS
	mux, sw       box
	datapath      *mux.Datapath
	agent         *agent.Datapath
	driver        *xdp.Driver
	sink          *sink
	pins          string
	undo          []func() error
	pace          pace
	syns          bool // the load is of SYNs
}

func newWorld(ctx context.Context, syns bool) (w *world, err error) {
	w = &world{
		syns: syns,
		pins: fmt.Sprintf("/sys/fs/bpf/weir-capacity-%d", os.Getpid()),
		mux:  box{name: "mux", port: "capmux", near: netip.MustParseAddr("10.79.1.1"), own: netip.MustParseAddr("10.79.1.2")},
		sw:   box{name: "switch", port: "capsw", near: netip.MustParseAddr("10.79.2.1"), own: netip.MustParseAddr("10.79.2.2")},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	for _, step := range []func() error{
		w.connect, w.openMux, func() error { return w.openSwitch(ctx) }, w.openHost, w.place, w.openSink, w.calibrate,
	} {
		if err := errors.Join(step(), ctx.Err()); err != nil {
			return w, err
		}
	}
	return w, nil
}

func (w *world) close() (err error) {
	for _, undo := range slices.Backward(w.undo) {
		err = errors.Join(err, undo())
	}
	return err
}

func (w *world) onClose(undo func() error) { w.undo = append(w.undo, undo) }

func (w *world) connect() (err error) {
	for name, ns := range map[string]**netns.NS{"network": &w.network, "mux": &w.mux.ns, "switch": &w.sw.ns, "host": &w.host} {
		if *ns, err = netns.Create(fmt.Sprintf("weir-cap%d-%s", os.Getpid(), name)); err != nil {
			return err
		}
		w.onClose((*ns).Delete)
	}
	for _, b := range []*box{&w.mux, &w.sw} {
		if err := w.connectBox(b); err != nil {
			return err
		}
	}
	return errors.Join(
		netns.Veth(w.network, "host", w.host, "uplink"),
		w.network.AddAddress("host", netip.PrefixFrom(hostDIP.Prev(), 24)), w.host.AddAddress("uplink", netip.PrefixFrom(hostDIP, 24)),
		w.network.AddAddress("lo", netip.PrefixFrom(client, 32)), w.host.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), hostDIP.Prev()),
		w.network.Sysctl("net.ipv4.ip_forward", "1"),
		w.network.Sysctl("net.ipv4.conf.all.rp_filter", "0"), w.network.Sysctl("net.ipv4.conf.host.rp_filter", "0"),
		w.route(&w.mux))
}

func (w *world) connectBox(b *box) error {
	err := errors.Join(
		netns.Veth(w.network, b.port, b.ns, b.port),
		w.network.AddAddress(b.port, netip.PrefixFrom(b.near, 24)), b.ns.AddAddress(b.port, netip.PrefixFrom(b.own, 24)),
		w.network.SetOffload(b.port, netns.TxChecksum, false)) // else XDP sends on what has none
	if err != nil {
		return err
	}
	link, err := w.network.Netlink().LinkByName(b.port)
	if err != nil {
		return err
	}
	b.link = *link.Attrs()
	return nil
}

// route has the client's packets to the VIP go by a box.
func (w *world) route(b *box) error {
	return w.network.ReplaceRoute(netip.PrefixFrom(pinged, 32), b.own)
}

// vips are the loaded ones, and the one that is pinged, each with the tunnel of its only backend.
func vips() map[netip.Addr]netip.Addr {
	all := map[netip.Addr]netip.Addr{pinged: hostDIP}
	for vip, n := firstVIP, 0; n < loadedVIPs; vip, n = vip.Next(), n+1 {
		all[vip] = sinkDIP
	}
	return all
}

func (w *world) openMux() error {
	mac, err := w.mux.ns.MAC(w.mux.port)
	if err != nil {
		return err
	}
	err = w.mux.ns.Do(func() (err error) {
		w.datapath, err = mux.Open(mux.Config{Interface: w.mux.port, PinPath: w.pins + "-mux", Mode: mux.Native})
		return err
	})
	if err != nil {
		return err
	}
	w.onClose(w.datapath.Unload)
	settings := pool.Settings{HashKey: hashKey, Source4: w.mux.own, MTU: mtu, MAC: [6]byte(mac)}
	hop := model.NextHop{Source: [6]byte(mac), Destination: [6]byte(w.mux.link.HardwareAddr)}
	var all []model.MuxEndpoint
	for vip, tunnel := range vips() {
		protocol := model.UDP
		if w.syns && vip != pinged {
			protocol = model.TCP
		}
		all = append(all, model.MuxEndpoint{
			Key:     model.EndpointKey{VIP: vip, Protocol: protocol, Port: vipPort},
			Buckets: slices.Repeat([]model.Slot{slot}, buckets), Backends: []model.MuxBackend{{Slot: slot, Tunnel: tunnel, Host: 1}},
			Cookies: model.CookiesOff, SYNCookies: model.SYNCookiesNever,
		})
	}
	w.mux.forwarded = func() (sum uint64, err error) {
		all, err := w.datapath.Verdicts()
		for name, c := range all {
			if strings.HasPrefix(name, "forward_") {
				sum += c.Packets
			}
		}
		return sum, err
	}
	return errors.Join(
		w.datapath.SetSettings(settings), w.datapath.Update(endpoint.Update{Snapshot: true, Endpoints: all}),
		w.datapath.SetNextHops(map[netip.Addr]model.NextHop{hostDIP: hop, sinkDIP: hop}))
}

func (w *world) openSwitch(ctx context.Context) error {
	ns := w.sw.ns
	index, err := ns.Index(w.sw.port)
	if err != nil {
		return err
	}
	err = errors.Join(
		ns.Sysctl("net.ipv4.ip_forward", "1"), ns.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), w.sw.near),
		ns.Netlink().NeighSet(&netlink.Neigh{
			LinkIndex: index, State: netlink.NUD_PERMANENT, IP: w.sw.near.AsSlice(), HardwareAddr: w.sw.link.HardwareAddr,
		}),
		ns.Do(func() (err error) {
			w.driver, err = xdp.New(xdp.Config{Ports: []string{w.sw.port}, Configure: true})
			return err
		}))
	if err != nil {
		return err
	}
	w.onClose(w.driver.Close)
	for vip, tunnel := range vips() {
		e := hardware.Entry{VIP: vip, Source: w.sw.own, Members: []hardware.Member{{Tunnel: tunnel, Entries: 1}}}
		if err := w.driver.Program(ctx, e); err != nil {
			return err
		}
	}
	w.sw.forwarded = func() (sum uint64, err error) {
		all, err := w.driver.Counters()
		for _, c := range all {
			sum += c.Packets
		}
		return sum, err
	}
	return nil
}

// openHost has the VIP that is pinged served at the host, by whatever box it comes.
func (w *world) openHost() error {
	err := w.host.Do(func() (err error) {
		w.agent, err = agent.Open(agent.Config{Uplink: "uplink", PinPath: w.pins + "-agent"})
		return err
	})
	if err != nil {
		return err
	}
	w.onClose(w.agent.Unload)
	key := model.EndpointKey{VIP: pinged, Protocol: model.UDP, Port: vipPort}
	backend := model.HostBackend{Endpoint: key, Tunnel: hostDIP, Backend: netip.AddrPortFrom(hostDIP, dipPort), Slot: slot}
	held := steering.VIP{
		Address: pinged, Switches: []netip.Addr{w.sw.own},
		Endpoints: []steering.Endpoint{{
			Key: key, Buckets: slices.Repeat([]model.Slot{slot}, buckets), Cookies: model.CookiesOff,
			Backends: []steering.Backend{{Slot: slot, Tunnel: hostDIP}},
		}},
	}
	w.agent.SetHashKey(hashKey)
	err = errors.Join(
		w.agent.SetMuxes([]netip.Prefix{netip.PrefixFrom(w.mux.own, 32)}), w.agent.Replace([]model.HostBackend{backend}),
		w.host.Do(func() error { return w.agent.SetWorkloads(map[netip.Addr]int{hostDIP: 0}, nil) }), w.agent.Steer([]steering.VIP{held}))
	if err != nil {
		return err
	}
	stop, err := echo(w.host, netip.AddrPortFrom(hostDIP, dipPort))
	if err == nil {
		w.onClose(func() error { stop(); return nil })
	}
	return err
}

// counted is what a box has got and done up to a time.
type counted struct {
	at                       time.Time
	forwarded, lost, arrived float64
	cpu                      time.Duration // of the threads that take what comes to it
}

func (w *world) count(b *box) (c counted, err error) {
	forwarded, err := b.forwarded()
	if err != nil {
		return c, err
	}
	arrived, err := w.sink.count()
	if err != nil {
		return c, err
	}
	link, err := b.ns.Netlink().LinkByName(b.port)
	if err != nil {
		return c, err
	}
	c = counted{at: time.Now(), forwarded: float64(forwarded), arrived: float64(arrived), lost: float64(link.Attrs().Statistics.RxDropped)}
	c.cpu, err = threadTime(b.threads)
	return c, err
}

// rate is what a box got and did in a second.
type rate struct {
	Sent      float64 `json:"sent_per_s"`
	Lost      float64 `json:"lost"` // part of what was sent, before the box's program saw it
	Forwarded float64 `json:"forwarded_per_s"`
	Arrived   float64 `json:"arrived_per_s"` // at the sink
	CPU       float64 `json:"cpu"`           // of one CPU
}

func (c counted) since(before counted) rate {
	took := c.at.Sub(before.at).Seconds()
	r := rate{
		Forwarded: (c.forwarded - before.forwarded) / took, Arrived: (c.arrived - before.arrived) / took,
		CPU: (c.cpu - before.cpu).Seconds() / took,
	}
	lost := (c.lost - before.lost) / took
	r.Sent = r.Forwarded + lost
	r.Lost = lost / max(r.Sent, 1)
	return r
}
