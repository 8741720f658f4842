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

const (
	vipPort, dipPort = 80, 8080
	slot             = 4711
	muxAddress       = "10.78.2.254"

	client      = "10.78.1.1"
	smallClient = "10.78.1.2" // of the same client: without the agent, workloads announce an MSS to it as small as with the agent

	clientMTU, outerHeader, innerHeaders = 1500, 76, 40 // bytes; outerHeader is what the agent leaves room for
)

func (k workload) vip() string {
	if k == native {
		return "203.0.113.10"
	}
	return "203.0.113.11"
}

// site is one of two equal paths to workloads of both kinds.
type site struct {
	name            string
	host, container *netns.NS
	subnet          int // and the one after it
}

func (s *site) dip(k workload) string {
	if k == native {
		return fmt.Sprintf("10.78.%d.3", s.subnet)
	}
	return fmt.Sprintf("10.78.%d.10", s.subnet+1)
}

// world has both paths, with the agent and without it:
//
//	client 10.78.1.1 ── 10.78.1.254 network 10.78.2.254 ── 10.78.2.3 with ──── 10.78.3.10 container
//	                                        10.78.4.254 ── 10.78.4.3 without ─ 10.78.5.10 container
//
// On the way to a VIP, network encapsulates, as a mux does; the cost of that is counted as the
// agent's. Without the agent, the client names the workload itself, and network and host forward.
//
// Where the network's MTU has no room for the outer header, a client's segments are smaller than they are
// without the agent. To tell what that costs, a second address of the client is announced the same MSS
// without the agent.
type world struct {
	client, network *netns.NS
	with, without   site
	mtu             int // between network and hosts
	servers         []*exec.Cmd
	pins            string
	stop            func() error // of agent and mux
}

func newWorld(mtu int) (w *world, err error) {
	w = &world{
		pins:    fmt.Sprintf("/sys/fs/bpf/weir-bench-agent-%d", os.Getpid()),
		with:    site{name: "with", subnet: 2},
		without: site{name: "without", subnet: 4},
		mtu:     mtu,
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
		for _, k := range []workload{native, container} {
			if err := w.serve(s, k); err != nil {
				return w, err
			}
		}
	}
	return w, w.startAgent()
}

func (w *world) namespaces() map[string]**netns.NS {
	all := map[string]**netns.NS{"client": &w.client, "network": &w.network}
	for _, s := range []*site{&w.with, &w.without} {
		all[s.name], all[s.name+"-c"] = &s.host, &s.container
	}
	return all
}

func (w *world) connect() error {
	return errors.Join(
		netns.Veth(w.client, "eth0", w.network, "client"),
		w.client.AddAddress("eth0", netip.MustParsePrefix(client+"/24"), netip.MustParsePrefix(smallClient+"/24")),
		w.network.AddAddress("client", netip.MustParsePrefix("10.78.1.254/24")),
		w.network.Sysctl("net.ipv4.ip_forward", "1"), w.network.Sysctl("net.ipv4.conf.all.rp_filter", "0"),
		w.client.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("10.78.1.254")),
		w.connectSite(&w.with), w.connectSite(&w.without),
		w.announce(w.without.host, netip.AddrFrom4([4]byte{10, 78, byte(w.without.subnet), 254})),
		w.announce(w.without.container, netip.AddrFrom4([4]byte{10, 78, byte(w.without.subnet + 1), 1})))
}

// announce has a workload tell smallClient the MSS that the agent would leave.
func (w *world) announce(ns *netns.NS, gateway netip.Addr) error {
	mss := min(clientMTU, w.mtu-outerHeader) - innerHeaders
	_, err := ns.Run("ip", "route", "add", smallClient+"/32", "via", gateway.String(), "advmss", strconv.Itoa(mss))
	return err
}

func setMTU(ns *netns.NS, device string, mtu int) error {
	_, err := ns.Run("ip", "link", "set", device, "mtu", strconv.Itoa(mtu))
	return err
}

func (w *world) connectSite(s *site) error {
	near := func(last int) netip.Addr { return netip.AddrFrom4([4]byte{10, 78, byte(s.subnet), byte(last)}) }
	far := func(last int) netip.Addr { return netip.AddrFrom4([4]byte{10, 78, byte(s.subnet + 1), byte(last)}) }
	everywhere := netip.MustParsePrefix("0.0.0.0/0")
	return errors.Join(
		netns.Veth(w.network, s.name, s.host, "uplink"),
		setMTU(w.network, s.name, w.mtu), setMTU(s.host, "uplink", w.mtu),
		netns.Veth(s.host, "w0", s.container, "eth0"),
		w.network.AddAddress(s.name, netip.PrefixFrom(near(254), 24)),
		s.host.AddAddress("uplink", netip.PrefixFrom(near(3), 24)),
		s.host.AddAddress("w0", netip.PrefixFrom(far(1), 24)),
		s.container.AddAddress("eth0", netip.PrefixFrom(far(10), 24)),
		w.network.Sysctl("net.ipv4.conf."+s.name+".rp_filter", "0"), s.host.Sysctl("net.ipv4.ip_forward", "1"),
		s.host.AddRoute(everywhere, near(254)),
		s.container.AddRoute(everywhere, far(1)),
		w.network.AddRoute(netip.PrefixFrom(far(0), 24), near(3)))
}

// serve starts iperf3's server and waits until it listens.
func (w *world) serve(s *site, k workload) error {
	ns := s.host
	if k == container {
		ns = s.container
	}
	cmd := exec.Command("iperf3", "--server", "--bind", s.dip(k), "--port", strconv.Itoa(dipPort))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := ns.Start(cmd); err != nil {
		return err
	}
	w.servers = append(w.servers, cmd)
	address := net.JoinHostPort(s.dip(k), strconv.Itoa(dipPort))
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

// measure takes all measurements, one right after the other; which is the first one changes.
func (w *world) measure(k workload, l load, round int, how options) (p pair, err error) {
	turns := []func() error{
		func() (err error) {
			p.without, err = w.iperf(client, w.without.dip(k), dipPort, l, how)
			return err
		},
		func() (err error) {
			p.with, err = w.iperf(client, k.vip(), vipPort, l, how)
			return err
		},
	}
	if !l.replies {
		turns = append(turns, func() (err error) {
			p.small, err = w.iperf(smallClient, w.without.dip(k), dipPort, l, how)
			return err
		})
	}
	for i := range turns {
		if err := turns[(i+round)%len(turns)](); err != nil {
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
	w.stop = datapath.Unload
	if err := w.fill(datapath); err != nil {
		return err
	}
	mux, err := w.startMux()
	if err != nil {
		return err
	}
	w.stop = func() error { return errors.Join(mux.Close(), datapath.Unload()) }
	return nil
}

func (w *world) fill(datapath *agent.Datapath) error {
	index, err := w.with.host.Index("w0")
	if err != nil {
		return err
	}
	var backends []model.HostBackend
	workloads := map[netip.Addr]int{}
	for _, k := range []workload{native, container} {
		dip := netip.MustParseAddr(w.with.dip(k))
		backends = append(backends, model.HostBackend{
			Endpoint: model.EndpointKey{VIP: netip.MustParseAddr(k.vip()), Protocol: model.TCP, Port: vipPort},
			Tunnel:   dip, Backend: netip.AddrPortFrom(dip, dipPort), Slot: slot, Cookies: true,
		})
		workloads[dip] = 0
		if k == container {
			workloads[dip] = index
		}
	}
	return errors.Join(
		datapath.SetMuxes([]netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(muxAddress), 32)}),
		datapath.Replace(backends),
		w.with.host.Do(func() error { return datapath.SetWorkloads(workloads, nil) }))
}

func (w *world) startMux() (*relay.Relay, error) {
	in, err := w.network.Index("client")
	if err != nil {
		return nil, err
	}
	out, err := w.network.Index(w.with.name)
	if err != nil {
		return nil, err
	}
	var mux *relay.Relay
	err = w.network.Do(func() (err error) {
		mux, err = relay.Attach(in, out)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, k := range []workload{native, container} {
		err = errors.Join(err, mux.Send(netip.MustParseAddr(k.vip()), netip.MustParseAddr(muxAddress), netip.MustParseAddr(w.with.dip(k))))
	}
	return mux, err
}

// iperf says how much arrives, and what CPU time both ends have taken for it.
func (w *world) iperf(from, address string, port int, l load, how options) (s sample, err error) {
	args := []string{
		"--client", address, "--port", strconv.Itoa(port), "--bind", from, "--json",
		"--bytes", strconv.Itoa(how.megabytes) + "M", "--parallel", strconv.Itoa(l.flows),
	}
	if how.congestion != "" {
		args = append(args, "--congestion", how.congestion)
	}
	if l.replies {
		args = append(args, "--reverse")
	}
	output, err := w.client.Run("iperf3", args...)
	if err != nil {
		return s, fmt.Errorf("iperf3 to %s: %w: %s", address, err, output)
	}
	var report struct {
		End struct {
			Received struct {
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
	return s, nil
}
