package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/weirlb/weir/internal/datapath/agent"
	"github.com/weirlb/weir/internal/datapath/mss"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/bpftest/relay"
)

// workload is where iperf3's server runs.
type workload string

const (
	native    workload = "native"    // on the host itself
	container workload = "container" // behind a veth of the host
)

// encapsulation is what the mux sends packets in.
type encapsulation string

const (
	ipip encapsulation = "ipip"
	gue  encapsulation = "gue"
)

const (
	vipPort, dipPort = 80, 8080
	slot             = 4711
	muxAddress       = "10.78.2.254"
)

// outerHeader is how many bytes the agent leaves room for where all tunnels are of the family.
var outerHeader = map[string]int{"v4": 64, "v6": 76}

// Host numbers in the subnets. To the second address of the client, workloads without the agent announce an MSS as small as
// with it.
const (
	clientHost, smallClientHost, hostHost, containerHost = 1, 2, 3, 10
	gatewayHost                                          = 254
)

// at is a host's address in a subnet of the family.
func at(family string, subnet, host int) netip.Addr {
	if family == "v6" {
		return netip.MustParseAddr(fmt.Sprintf("fd78:%x::%x", subnet, host))
	}
	return netip.AddrFrom4([4]byte{10, 78, byte(subnet), byte(host)})
}

// prefixAt is a host's address with the length of its subnet.
func prefixAt(family string, subnet, host int) netip.Prefix {
	bits := 24
	if family == "v6" {
		bits = 64
	}
	return netip.PrefixFrom(at(family, subnet, host), bits)
}

func prefixesAt(subnet int, hosts ...int) (all []netip.Prefix) {
	for _, host := range hosts {
		all = append(all, prefixAt("v4", subnet, host), prefixAt("v6", subnet, host))
	}
	return all
}

// vipOf is the VIP by which a workload is reached in the encapsulation.
func vipOf(family string, kind workload, in encapsulation) netip.Addr {
	host := byte(0x10)
	if kind == container {
		host++
	}
	if in == gue {
		host += 0x10
	}
	if family == "v6" {
		return netip.MustParseAddr(fmt.Sprintf("2001:db8:1::%x", host))
	}
	return netip.AddrFrom4([4]byte{203, 0, 113, host})
}

// site is one of two equal paths to workloads of both kinds.
type site struct {
	name            string
	host, container *netns.NS
	subnet          int // and the one after it
}

func (s *site) dip(family string, kind workload) netip.Addr {
	if kind == native {
		return at(family, s.subnet, hostHost)
	}
	return at(family, s.subnet+1, containerHost)
}

// world has both paths, with the agent and without it, of IPv4 and IPv6:
//
//	client 10.78.1.1 ── 10.78.1.254 network 10.78.2.254 ── 10.78.2.3 with ──── 10.78.3.10 container
//	                                        10.78.4.254 ── 10.78.4.3 without ─ 10.78.5.10 container
//
// On the way to a VIP, network encapsulates, as a mux does. Without the agent, the client names the workload itself: the same
// program of network encapsulates and decapsulates (which takes 0.06 µs more of 12 to 25 µs that a buffer takes), so that
// neither path is charged for the mux, and the host forwards. On both the host gets buffers that are no clones, as from a NIC.
type world struct {
	network
	client, between *netns.NS
	with, without   site
	servers         []*exec.Cmd
	pins            string
	stop            func() error // of agent and mux
	datapath        *agent.Datapath
	family          string // of the tunnels that the host serves now
}

func newWorld(n network) (w *world, err error) {
	w = &world{
		network: n,
		pins:    fmt.Sprintf("/sys/fs/bpf/weir-bench-agent-%d", os.Getpid()),
		with:    site{name: "with", subnet: 2},
		without: site{name: "without", subnet: 4},
		stop:    func() error { return nil },
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	for name, ns := range w.namespaces() {
		if *ns, err = netns.Create(fmt.Sprintf("weir-bench%d-%s", os.Getpid(), name)); err != nil {
			return w, err
		}
	}
	if err := w.connect(); err != nil {
		return w, err
	}
	for _, s := range []*site{&w.with, &w.without} {
		for _, family := range []string{"v4", "v6"} {
			for _, kind := range []workload{native, container} {
				if err := w.serve(s, family, kind); err != nil {
					return w, err
				}
			}
		}
	}
	return w, w.startAgent()
}

func (w *world) namespaces() map[string]**netns.NS {
	all := map[string]**netns.NS{"client": &w.client, "network": &w.between}
	for _, s := range []*site{&w.with, &w.without} {
		all[s.name], all[s.name+"-c"] = &s.host, &s.container
	}
	return all
}

// forward has a namespace route.
func forward(ns *netns.NS) error {
	return errors.Join(ns.Sysctl("net.ipv4.ip_forward", "1"), ns.Sysctl("net.ipv6.conf.all.forwarding", "1"))
}

// addDefault has a namespace send everything by a gateway.
func addDefault(ns *netns.NS, subnet, host int) error {
	return errors.Join(
		ns.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), at("v4", subnet, host)),
		ns.AddRoute(netip.MustParsePrefix("::/0"), at("v6", subnet, host)))
}

func (w *world) connect() error {
	return errors.Join(
		netns.Veth(w.client, "eth0", w.between, "client"),
		w.client.AddAddress("eth0", prefixesAt(1, clientHost, smallClientHost)...),
		w.between.AddAddress("client", prefixesAt(1, gatewayHost)...),
		forward(w.between), w.between.Sysctl("net.ipv4.conf.all.rp_filter", "0"),
		addDefault(w.client, 1, gatewayHost),
		w.connectSite(&w.with), w.connectSite(&w.without),
		w.announce(w.without.host, w.without.subnet, gatewayHost),
		w.announce(w.without.container, w.without.subnet+1, clientHost))
}

// announce has a workload tell the client's second address the MSS that the agent would leave.
func (w *world) announce(ns *netns.NS, subnet, gateway int) (err error) {
	for _, family := range []string{"v4", "v6"} {
		most := mss.For(w.mtu-outerHeader[family], family == "v6")
		_, failed := ns.Run("ip", "route", "add", at(family, 1, smallClientHost).String(),
			"via", at(family, subnet, gateway).String(), "advmss", strconv.Itoa(most))
		err = errors.Join(err, failed)
	}
	return err
}

func (w *world) connectSite(s *site) error {
	near, far := s.subnet, s.subnet+1
	err := errors.Join(
		netns.Veth(w.between, s.name, s.host, "uplink"),
		w.between.SetMTU(s.name, w.mtu), s.host.SetMTU("uplink", w.mtu),
		netns.Veth(s.host, "w0", s.container, "eth0"),
		w.between.AddAddress(s.name, prefixesAt(near, gatewayHost)...),
		s.host.AddAddress("uplink", prefixesAt(near, hostHost)...),
		s.host.AddAddress("w0", prefixesAt(far, clientHost)...),
		s.container.AddAddress("eth0", prefixesAt(far, containerHost)...),
		w.between.Sysctl("net.ipv4.conf."+s.name+".rp_filter", "0"), forward(s.host),
		addDefault(s.host, near, gatewayHost), addDefault(s.container, far, clientHost))
	for _, family := range []string{"v4", "v6"} {
		err = errors.Join(err, w.between.AddRoute(prefixAt(family, far, 0).Masked(), at(family, near, hostHost)))
	}
	if w.wire {
		err = errors.Join(err, w.between.SetOffload(s.name, netns.TSO, false), s.host.SetOffload("uplink", netns.GRO, true))
	}
	return err
}

// serve starts iperf3's server and waits until it listens.
func (w *world) serve(s *site, family string, kind workload) error {
	ns := s.host
	if kind == container {
		ns = s.container
	}
	dip := s.dip(family, kind).String()
	cmd := exec.Command("iperf3", "--server", "--bind", dip, "--port", strconv.Itoa(dipPort))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := ns.Start(cmd); err != nil {
		return err
	}
	w.servers = append(w.servers, cmd)
	address := net.JoinHostPort(dip, strconv.Itoa(dipPort))
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := w.client.Do(func() error {
			connection, err := net.Dial("tcp", address)
			if err != nil {
				return err
			}
			return connection.Close()
		})
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func (w *world) close() error {
	err := w.stop()
	for _, server := range w.servers {
		_ = server.Process.Kill()
		_ = server.Wait()
	}
	for _, ns := range w.namespaces() {
		if *ns != nil {
			_ = (*ns).Delete()
		}
	}
	return err
}

// target is what the client connects to, from one of its addresses.
type target struct {
	from, to netip.Addr
	port     int
}

// measure takes all measurements of a row, one right after the other; which is the first one changes.
func (w *world) measure(r *result, round int, how options) (p pair, err error) {
	if err := w.fill(r.Family); err != nil {
		return p, err
	}
	from := at(r.Family, 1, clientHost)
	byAgent := func(in encapsulation) target { return target{from, vipOf(r.Family, r.Workload, in), vipPort} }
	dip := w.without.dip(r.Family, r.Workload)
	targets := map[*sample]target{&p.without: {from, dip, dipPort}, &p.with: byAgent(r.Encapsulation)}
	turns := []*sample{&p.without, &p.with}
	if r.Encapsulation == gue {
		targets[&p.without] = byAgent(ipip)
	} else if w.mtu < roomyMTU {
		targets[&p.small] = target{at(r.Family, 1, smallClientHost), dip, dipPort}
		turns = append(turns, &p.small)
	}
	for i := range turns {
		turn := turns[(i+round)%len(turns)]
		if *turn, err = w.iperf(targets[turn], r.load, how); err != nil {
			return p, err
		}
	}
	return p, nil
}

// startAgent loads the data plane and has the network encapsulate.
func (w *world) startAgent() error {
	var datapath *agent.Datapath
	err := w.with.host.Do(func() (err error) {
		datapath, err = agent.Open(agent.Config{Uplink: "uplink", PinPath: w.pins})
		return err
	})
	if err != nil {
		return err
	}
	w.stop, w.datapath = datapath.Unload, datapath
	if err := w.fill("v4"); err != nil {
		return err
	}
	mux, err := w.startMux()
	if err != nil {
		return err
	}
	w.stop = func() error { return errors.Join(mux.Close(), datapath.Unload()) }
	return nil
}

// fill has the host serve the VIPs of a family alone: that of tunnels says how large clients' segments may be.
func (w *world) fill(family string) error {
	if family == w.family {
		return nil
	}
	index, err := w.with.host.Index("w0")
	if err != nil {
		return err
	}
	var backends []model.HostBackend
	workloads := map[netip.Addr]int{}
	err = w.eachVIP(func(vip, dip netip.Addr, kind workload, _ encapsulation) error {
		if vip.Is6() != (family == "v6") {
			return nil
		}
		backends = append(backends, model.HostBackend{
			Endpoint: model.EndpointKey{VIP: vip, Protocol: model.TCP, Port: vipPort},
			Tunnel:   dip, Backend: netip.AddrPortFrom(dip, dipPort), Slot: slot, Cookies: true,
		})
		workloads[dip] = 0
		if kind == container {
			workloads[dip] = index
		}
		return nil
	})
	muxes := []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(muxAddress), 32), netip.PrefixFrom(at("v6", w.with.subnet, gatewayHost), 128)}
	w.family = family
	return errors.Join(
		err, w.datapath.SetMuxes(muxes), w.datapath.Replace(backends),
		w.with.host.Do(func() error { return w.datapath.SetWorkloads(workloads, nil) }))
}

func (w *world) eachVIP(do func(vip, dip netip.Addr, kind workload, in encapsulation) error) (err error) {
	for _, family := range []string{"v4", "v6"} {
		for _, kind := range []workload{native, container} {
			for _, in := range []encapsulation{ipip, gue} {
				err = errors.Join(err, do(vipOf(family, kind, in), w.with.dip(family, kind), kind, in))
			}
		}
	}
	return err
}

func (w *world) startMux() (*relay.Relay, error) {
	in, err := w.between.Index("client")
	if err != nil {
		return nil, err
	}
	with, err := w.between.Index(w.with.name)
	if err != nil {
		return nil, err
	}
	without, err := w.between.Index(w.without.name)
	if err != nil {
		return nil, err
	}
	var mux *relay.Relay
	err = w.between.Do(func() (err error) {
		if mux, err = relay.Attach(in, with); err == nil {
			err = mux.Unclone(in)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	source := map[string]netip.Addr{"v4": netip.MustParseAddr(muxAddress), "v6": at("v6", w.with.subnet, gatewayHost)}
	err = w.eachVIP(func(vip, dip netip.Addr, _ workload, in encapsulation) error {
		of := "v4"
		if vip.Is6() {
			of = "v6"
		}
		if in == gue {
			return mux.SendGUE(vip, source[of], dip, netip.Addr{}, with)
		}
		return mux.Send(vip, source[of], dip)
	})
	for _, family := range []string{"v4", "v6"} {
		for _, kind := range []workload{native, container} {
			err = errors.Join(err, mux.Pass(w.without.dip(family, kind), source[family], without))
		}
	}
	return mux, err
}

// iperf says how much arrives, and what CPU time both ends have taken for it.
func (w *world) iperf(t target, l load, how options) (s sample, err error) {
	args := []string{
		"--client", t.to.String(), "--port", strconv.Itoa(t.port), "--bind", t.from.String(), "--json",
		"--bytes", strconv.Itoa(how.megabytes) + "M", "--parallel", strconv.Itoa(l.flows),
	}
	if how.congestion != "" {
		args = append(args, "--congestion", how.congestion)
	}
	if l.replies {
		args = append(args, "--reverse")
	}
	before, err := busyTime()
	if err != nil {
		return s, err
	}
	output, err := w.client.Run("iperf3", args...)
	if err != nil {
		return s, fmt.Errorf("iperf3 to %s: %w: %s", t.to, err, output)
	}
	after, err := busyTime()
	if err != nil {
		return s, err
	}
	var report struct {
		End struct {
			Received struct {
				Bytes         float64 `json:"bytes"`
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
			CPU struct {
				Host   float64 `json:"host_total"`
				Remote float64 `json:"remote_total"`
			} `json:"cpu_utilization_percent"`
		} `json:"end"`
	}
	if err := json.Unmarshal([]byte(output), &report); err != nil {
		return s, fmt.Errorf("read iperf3's report: %w", err)
	}
	s.rate = report.End.Received.BitsPerSecond
	s.work = s.rate / ((report.End.CPU.Host + report.End.CPU.Remote) / 100)
	s.busy = 8 * report.End.Received.Bytes / (after - before).Seconds()
	return s, nil
}

// busyTime is for how long the machine's CPUs have worked: for processes, the kernel and interrupts.
func busyTime() (time.Duration, error) {
	const tick = time.Second / 100 // of /proc/stat, whatever the kernel's own is
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	var user, nice, system, idle, wait, irq, softirq int64
	if _, err := fmt.Sscanf(string(stat), "cpu %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &softirq); err != nil {
		return 0, fmt.Errorf("read /proc/stat: %w", err)
	}
	return time.Duration(user+nice+system+irq+softirq) * tick, nil
}
