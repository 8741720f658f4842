package agent_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/weirlb/weir/internal/datapath/agent"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/bpftest/relay"
)

// The world of the namespace tests.
//
//	┌─ client ────────┐    ┌─ network ───────────────┐    ┌─ host ────────────┐    ┌─ workload ─────┐
//	│ 10.77.1.1       ├────┤ 10.77.1.254 10.77.2.254 ├────┤ 10.77.2.3         ├────┤ 10.77.3.10     │
//	│ fd77:1::1  eth0 │    │ client              host│    │ uplink         w0 │    │ eth0 fd77:3::10│
//	└─────────────────┘    └─────────────────────────┘    └───────────────────┘    └────────────────┘
//
// network routes, and encapsulates what comes from the client for a VIP as a mux does. The VIPs
// ending in 10 are served natively on the host, those in 11 behind w0.
type world struct {
	t                               *testing.T
	client, network, host, workload *netns.NS
	pins                            string
	datapath                        *agent.Datapath
	mux                             *relay.Relay
	outer                           int // bytes of outer header that the host's agent leaves room for
}

const (
	nativeVIP4, nativeVIP6       = "203.0.113.10", "2001:db8:1::10"
	interfaceVIP4, interfaceVIP6 = "203.0.113.11", "2001:db8:1::11"
	hostDIP4, hostDIP6           = "10.77.2.3", "fd77:2::3"
	workloadDIP4, workloadDIP6   = "10.77.3.10", "fd77:3::10"
	vipPort, dipPort             = 80, 8080
	slot                         = 4711
)

func newWorld(t *testing.T) *world {
	t.Helper()
	return emptyWorld(t).build()
}

// newOrderedWorld is one where no packet overtakes another: one CPU takes in what arrives at every interface. With two
// that have other work, a stack now and then refuses an old acknowledgement, for its timestamp is of two milliseconds
// before, or of another tick of cookies.
func newOrderedWorld(t *testing.T) *world {
	t.Helper()
	w := emptyWorld(t)
	for _, ns := range []*netns.NS{w.client, w.network, w.host, w.workload} {
		w.must(ns.Sysctl("net.core.rps_default_mask", "1"))
	}
	return w.build()
}

func emptyWorld(t *testing.T) *world {
	t.Helper()
	return &world{
		outer:  outerMost,
		t:      t,
		client: newNS(t, "client"), network: newNS(t, "network"), host: newNS(t, "host"), workload: newNS(t, "workload"),
		pins: fmt.Sprintf("/sys/fs/bpf/weir-agent-test-%d", os.Getpid()),
	}
}

func (w *world) build() *world {
	w.t.Helper()
	w.must(
		netns.Veth(w.client, "eth0", w.network, "client"),
		netns.Veth(w.network, "host", w.host, "uplink"),
		w.client.AddAddress("eth0", prefixes("10.77.1.1/24", "fd77:1::1/64")...),
		w.network.AddAddress("client", prefixes("10.77.1.254/24", "fd77:1::254/64")...),
		w.network.AddAddress("host", prefixes("10.77.2.254/24", "fd77:2::254/64")...),
		w.host.AddAddress("uplink", prefixes("10.77.2.3/24", "fd77:2::3/64")...),
		w.network.Sysctl("net.ipv4.ip_forward", "1"),
		w.network.Sysctl("net.ipv6.conf.all.forwarding", "1"),
		w.network.Sysctl("net.ipv4.conf.all.rp_filter", "0"),
		w.network.Sysctl("net.ipv4.conf.host.rp_filter", "0"),
		// A host needs no forwarding, and may filter by reverse path.
		w.host.Sysctl("net.ipv4.ip_forward", "0"),
		w.host.Sysctl("net.ipv6.conf.all.forwarding", "0"),
		w.host.Sysctl("net.ipv4.conf.uplink.rp_filter", "1"),
		routes(w.client, "10.77.1.254", "fd77:1::254", "0.0.0.0/0", "::/0"),
		routes(w.host, "10.77.2.254", "fd77:2::254", "0.0.0.0/0", "::/0"),
		routes(w.network, hostDIP4, hostDIP6, "10.77.3.0/24", "fd77:3::/64"))
	w.plugWorkload()
	w.relay()
	w.start()
	w.fill()
	return w
}

// newNS makes a namespace of this process, beside those of others that test the same.
func newNS(t *testing.T, name string) *netns.NS {
	t.Helper()
	return netns.New(t, fmt.Sprintf("wagent%d-%s", os.Getpid(), name))
}

// plugWorkload makes the workload's interface, which gets a new index each time.
func (w *world) plugWorkload() {
	w.t.Helper()
	w.must(netns.Veth(w.host, "w0", w.workload, "eth0"))
	w.addressWorkload()
}

func (w *world) addressWorkload() {
	w.t.Helper()
	w.must(
		w.host.AddAddress("w0", prefixes("10.77.3.1/24", "fd77:3::1/64")...),
		w.workload.AddAddress("eth0", prefixes("10.77.3.10/24", "fd77:3::10/64")...),
		routes(w.workload, "10.77.3.1", "fd77:3::1", "0.0.0.0/0", "::/0"))
}

// relay has the network encapsulate: each VIP in the other family's tunnel once.
func (w *world) relay() {
	w.t.Helper()
	in, err := w.network.Index("client")
	w.must(err)
	out, err := w.network.Index("host")
	w.must(err)
	w.must(w.network.Do(func() error {
		w.mux, err = relay.Attach(in, out)
		return err
	}))
	w.t.Cleanup(func() { w.mux.Close() })
	for vip, tunnel := range map[string]string{
		nativeVIP4: hostDIP4, nativeVIP6: hostDIP4,
		interfaceVIP4: workloadDIP6, interfaceVIP6: workloadDIP6,
	} {
		source := netip.MustParseAddr("10.77.2.254")
		if netip.MustParseAddr(tunnel).Is6() {
			source = netip.MustParseAddr("fd77:2::254")
		}
		w.must(w.mux.Send(netip.MustParseAddr(vip), source, netip.MustParseAddr(tunnel)))
	}
}

// start opens the data plane and fills its tables, which a second start finds there already.
func (w *world) start() {
	w.t.Helper()
	w.must(w.host.Do(func() (err error) {
		w.datapath, err = agent.Open(agent.Config{Uplink: "uplink", PinPath: w.pins, MaxSessions: 1 << 12})
		return err
	}))
	w.t.Cleanup(func() {
		if w.datapath != nil {
			w.must(w.datapath.Unload())
		}
		w.datapath = nil
	})
}

func (w *world) fill() {
	w.t.Helper()
	var all []model.HostBackend
	for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
		all = append(all,
			backend(protocol, nativeVIP4, hostDIP4, hostDIP4), backend(protocol, nativeVIP6, hostDIP4, hostDIP6),
			backend(protocol, interfaceVIP4, workloadDIP6, workloadDIP4),
			backend(protocol, interfaceVIP6, workloadDIP6, workloadDIP6))
	}
	w.must(
		w.datapath.SetMuxes(prefixes("10.77.2.254/32", "fd77:2::254/128")),
		w.datapath.Replace(all),
		w.setWorkloads())
}

func (w *world) setWorkloads() error {
	index, err := w.host.Index("w0")
	if err != nil {
		return err
	}
	return w.host.Do(func() error {
		return w.datapath.SetWorkloads(map[netip.Addr]int{
			netip.MustParseAddr(hostDIP4): 0, netip.MustParseAddr(hostDIP6): 0,
			netip.MustParseAddr(workloadDIP4): index, netip.MustParseAddr(workloadDIP6): index,
		}, nil)
	})
}

func backend(protocol model.Protocol, vip, tunnel, dip string) model.HostBackend {
	return model.HostBackend{
		Endpoint: model.EndpointKey{VIP: netip.MustParseAddr(vip), Protocol: protocol, Port: vipPort},
		Tunnel:   netip.MustParseAddr(tunnel),
		Backend:  netip.AddrPortFrom(netip.MustParseAddr(dip), dipPort),
		Slot:     slot, Cookies: protocol == model.TCP,
	}
}

// offloads switches what an interface may leave to the hardware, on every interface.
func (w *world) offloads(on bool) {
	w.t.Helper()
	for _, i := range []struct {
		ns   *netns.NS
		name string
	}{
		{w.client, "eth0"},
		{w.network, "client"},
		{w.network, "host"},
		{w.host, "uplink"},
		{w.host, "w0"},
		{w.workload, "eth0"},
	} {
		w.must(
			i.ns.SetOffload(i.name, netns.TxChecksum, on), i.ns.SetOffload(i.name, netns.TSO, on),
			i.ns.SetOffload(i.name, netns.GSO, on), i.ns.SetOffload(i.name, netns.GRO, on))
	}
}

func (w *world) must(errs ...error) {
	w.t.Helper()
	if err := errors.Join(errs...); err != nil {
		w.t.Fatal(err)
	}
}

func prefixes(all ...string) []netip.Prefix {
	parsed := make([]netip.Prefix, len(all))
	for i, s := range all {
		parsed[i] = netip.MustParsePrefix(s)
	}
	return parsed
}

// routes adds routes via gateways, each of its own family.
func routes(ns *netns.NS, via4, via6 string, to ...string) error {
	var failed []error
	for _, p := range prefixes(to...) {
		via := via4
		if p.Addr().Is6() {
			via = via6
		}
		failed = append(failed, ns.AddRoute(p, netip.MustParseAddr(via)))
	}
	return errors.Join(failed...)
}
