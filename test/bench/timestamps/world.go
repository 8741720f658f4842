package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/weirlb/weir/internal/datapath/agent"
	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
)

const (
	buckets = 256
	mtu     = 1500
	slot    = 0x155 // the cookie

	firstPort = 80 // of the VIP: two for each loss, with cookies and without
	dipPort   = 8080
	muxPort   = "mux" // interfaces of the router and of what is at its ports
	hostPort  = "host"

	joinTable = 100 // routes of the second path's address
)

var (
	vip     = netip.MustParseAddr("203.0.113.1")
	muxIP   = netip.MustParseAddr("10.80.1.2")
	hostDIP = netip.MustParseAddr("10.80.2.2")
	hashKey = flowhash.Key{4, 5, 6}
)

// world is a client that downloads from a host through a mux, by paths that a relay makes. Answers pass no mux.
//
//	       ┌── path0 ── relay ── path0 ──┐         ┌── 10.80.1.2 mux
//	client ┤                             ├ router ─┤
//	       └── path1 ── relay ── path1 ──┘         └── 10.80.2.2 host, agent
type world struct {
	client, router, mux, host *netns.NS

	paths    []path
	datapath *mux.Datapath
	agent    *agent.Datapath
	pins     string
	undo     []func() error
}

// path is one of the client's ways to the router.
type path struct {
	address   netip.Addr // of the client
	near, far *os.File   // the client's interface, and the router's
}

func newWorld(paths int) (w *world, err error) {
	w = &world{pins: fmt.Sprintf("/sys/fs/bpf/weir-timestamps-%d", os.Getpid())}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if err := w.connect(); err != nil {
		return w, err
	}
	for n := range paths {
		if err := w.addPath(n); err != nil {
			return w, err
		}
	}
	return w, errors.Join(w.openMux(), w.openHost())
}

func (w *world) close() (err error) {
	for _, undo := range slices.Backward(w.undo) {
		err = errors.Join(err, undo())
	}
	return err
}

func (w *world) onClose(undo func() error) { w.undo = append(w.undo, undo) }

func (w *world) connect() (err error) {
	for name, ns := range map[string]**netns.NS{"client": &w.client, "router": &w.router, "mux": &w.mux, "host": &w.host} {
		if *ns, err = netns.Create(fmt.Sprintf("weir-ts%d-%s", os.Getpid(), name)); err != nil {
			return err
		}
		w.onClose((*ns).Delete)
	}
	everywhere := netip.MustParsePrefix("0.0.0.0/0")
	return errors.Join(
		netns.Veth(w.router, muxPort, w.mux, muxPort), netns.Veth(w.router, hostPort, w.host, hostPort),
		w.router.AddAddress(muxPort, netip.PrefixFrom(muxIP.Prev(), 24)), w.mux.AddAddress(muxPort, netip.PrefixFrom(muxIP, 24)),
		w.router.AddAddress(hostPort, netip.PrefixFrom(hostDIP.Prev(), 24)), w.host.AddAddress(hostPort, netip.PrefixFrom(hostDIP, 24)),
		w.host.AddRoute(everywhere, hostDIP.Prev()), w.router.AddRoute(netip.PrefixFrom(vip, 32), muxIP),
		w.router.Sysctl("net.ipv4.ip_forward", "1"),
		w.router.PassXDP(muxPort),
		w.host.Sysctl("net.ipv4.tcp_no_metrics_save", "1")) // else a connection begins where others of the client ended
}

// addPath adds the n-th. Connections begin on the first, and are joined from the others.
func (w *world) addPath(n int) (err error) {
	name := fmt.Sprintf("path%d", n)
	p := path{address: netip.AddrFrom4([4]byte{198, 51, 100, byte(n + 1)})}
	for ns, file := range map[*netns.NS]**os.File{w.client: &p.near, w.router: &p.far} {
		if *file, err = openTUN(ns, name); err != nil {
			return err
		}
		w.onClose((*file).Close)
	}
	w.paths = append(w.paths, p)
	own, everywhere := netip.PrefixFrom(p.address, 32), netip.MustParsePrefix("0.0.0.0/0")
	err = errors.Join(w.client.AddAddress(name, own), w.router.AddLinkRoute(own, name))
	if err != nil || n == 0 {
		return errors.Join(err, w.client.AddLinkRoute(everywhere, name))
	}
	index, err := w.client.Index(name)
	if err != nil {
		return err
	}
	route := &netlink.Route{Table: joinTable + n, LinkIndex: index, Scope: netlink.SCOPE_LINK, Dst: ipNet(everywhere)}
	rule := netlink.NewRule()
	rule.Src, rule.Table, rule.Family = ipNet(own), route.Table, netlink.FAMILY_V4
	if err := errors.Join(w.client.Netlink().RouteAdd(route), w.client.Netlink().RuleAdd(rule)); err != nil {
		return fmt.Errorf("route what %s sends by %s: %w", p.address, name, err)
	}
	_, err = w.client.Run("ip", "mptcp", "endpoint", "add", p.address.String(), "dev", name, "subflow")
	return err
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// port is the VIP's for a loss, by its number.
func port(loss int, cookies bool) uint16 {
	if cookies {
		return uint16(firstPort + 2*loss)
	}
	return uint16(firstPort + 2*loss + 1)
}

func key(loss int, cookies bool) model.EndpointKey {
	return model.EndpointKey{VIP: vip, Protocol: model.TCP, Port: port(loss, cookies)}
}

// ways are all that downloads differ by but the round trip time.
func ways() (all []way) {
	for loss := range losses {
		all = append(all, way{loss, true}, way{loss, false})
	}
	return all
}

type way struct {
	loss    int // its number
	cookies bool
}

func (w *world) openMux() error {
	mac, err := w.mux.MAC(muxPort)
	if err != nil {
		return err
	}
	router, err := w.router.MAC(muxPort)
	if err != nil {
		return err
	}
	err = w.mux.Do(func() (err error) {
		w.datapath, err = mux.Open(mux.Config{Interface: muxPort, PinPath: w.pins + "-mux", Mode: mux.Native})
		return err
	})
	if err != nil {
		return err
	}
	w.onClose(w.datapath.Unload)
	var all []model.MuxEndpoint
	for _, way := range ways() {
		e := model.MuxEndpoint{
			Key: key(way.loss, way.cookies), Buckets: slices.Repeat([]model.Slot{slot}, buckets),
			Backends: []model.MuxBackend{{Slot: slot, Tunnel: hostDIP, Host: 1}},
			Cookies:  model.CookiesOff, SYNCookies: model.SYNCookiesNever, FlowLimit: 1 << 16,
		}
		if way.cookies {
			e.Cookies = model.CookiesOn
		}
		all = append(all, e)
	}
	hop := model.NextHop{Source: [6]byte(mac), Destination: [6]byte(router)}
	return errors.Join(
		w.datapath.SetSettings(pool.Settings{HashKey: hashKey, Source4: muxIP, MTU: mtu, MAC: [6]byte(mac)}),
		w.datapath.Update(endpoint.Update{Snapshot: true, Endpoints: all}),
		w.datapath.SetNextHops(map[netip.Addr]model.NextHop{hostDIP: hop}))
}

func (w *world) openHost() error {
	err := w.host.Do(func() (err error) {
		w.agent, err = agent.Open(agent.Config{Uplink: hostPort, PinPath: w.pins + "-agent"})
		return err
	})
	if err != nil {
		return err
	}
	w.onClose(w.agent.Unload)
	var all []model.HostBackend
	for _, way := range ways() {
		all = append(all, model.HostBackend{
			Endpoint: key(way.loss, way.cookies), Tunnel: hostDIP, Backend: netip.AddrPortFrom(hostDIP, dipPort), Slot: slot, Cookies: way.cookies,
			Buckets: buckets,
		})
	}
	w.agent.SetHashKey(hashKey)
	return errors.Join(
		w.agent.SetMuxes([]netip.Prefix{netip.PrefixFrom(muxIP, 32)}), w.agent.Replace(all),
		w.host.Do(func() error { return w.agent.SetWorkloads(map[netip.Addr]int{hostDIP: 0}, nil) }))
}

// check fails unless about half of what the mux forwarded carried cookies.
func (w *world) check() error {
	all, err := w.datapath.Verdicts()
	if err != nil {
		return err
	}
	var sum, cookies uint64
	for name, c := range all {
		if strings.HasPrefix(name, "forward_") {
			sum += c.Packets
		}
		if name == "forward_cookie" {
			cookies = c.Packets
		}
	}
	if part := float64(cookies) / float64(sum); part < 0.3 || part > 0.7 {
		return fmt.Errorf("of %d packets %d carried cookies: about half of them should", sum, cookies)
	}
	return nil
}

// joined counts the subflows that the client has joined connections with.
func (w *world) joined() (int, error) {
	text, err := w.client.Run("nstat", "-asz", "MPTcpExtMPJoinSynAckRx")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "MPTcpExtMPJoinSynAckRx" {
			return strconv.Atoi(fields[1])
		}
	}
	return 0, fmt.Errorf("no joins are counted: %s", text)
}
