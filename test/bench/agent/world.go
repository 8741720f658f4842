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
	"github.com/weirlb/weir/internal/datapath/agent/relay"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/netns"
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
	hostDIP          = "10.78.2.3"
	containerDIP     = "10.78.3.10"
	muxAddress       = "10.78.2.254"
)

func (k workload) vip() string {
	if k == native {
		return "203.0.113.10"
	}
	return "203.0.113.11"
}

func (k workload) dip() string {
	if k == native {
		return hostDIP
	}
	return containerDIP
}

// world is the path, with and without the agent:
//
//	client 10.78.1.1 ── 10.78.1.254 network 10.78.2.254 ── 10.78.2.3 host ── 10.78.3.10 container
//
// With the agent, network encapsulates what is for a VIP, as a mux does; the cost of that is counted
// as the agent's. Without it, the client names the workload itself, and network and host forward.
type world struct {
	client, network, host, container *netns.NS
	servers                          []*exec.Cmd
	pins                             string
}

func newWorld() (w *world, err error) {
	w = &world{pins: fmt.Sprintf("/sys/fs/bpf/weir-bench-agent-%d", os.Getpid())}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	for name, ns := range map[string]**netns.NS{"client": &w.client, "network": &w.network, "host": &w.host, "container": &w.container} {
		if *ns, err = netns.Create(fmt.Sprintf("weir-bench%d-%s", os.Getpid(), name)); err != nil {
			return w, err
		}
	}
	if err := w.connect(); err != nil {
		return w, err
	}
	for _, k := range []workload{native, container} {
		if err := w.serve(k); err != nil {
			return w, err
		}
	}
	return w, nil
}

func (w *world) connect() error {
	return errors.Join(
		netns.Veth(w.client, "eth0", w.network, "client"),
		netns.Veth(w.network, "host", w.host, "uplink"),
		netns.Veth(w.host, "w0", w.container, "eth0"),
		w.client.AddAddress("eth0", netip.MustParsePrefix("10.78.1.1/24")),
		w.network.AddAddress("client", netip.MustParsePrefix("10.78.1.254/24")),
		w.network.AddAddress("host", netip.MustParsePrefix("10.78.2.254/24")),
		w.host.AddAddress("uplink", netip.MustParsePrefix("10.78.2.3/24")),
		w.host.AddAddress("w0", netip.MustParsePrefix("10.78.3.1/24")),
		w.container.AddAddress("eth0", netip.MustParsePrefix("10.78.3.10/24")),
		w.network.Sysctl("net.ipv4.ip_forward", "1"), w.host.Sysctl("net.ipv4.ip_forward", "1"),
		w.network.Sysctl("net.ipv4.conf.all.rp_filter", "0"), w.network.Sysctl("net.ipv4.conf.host.rp_filter", "0"),
		w.client.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("10.78.1.254")),
		w.host.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("10.78.2.254")),
		w.container.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("10.78.3.1")),
		w.network.AddRoute(netip.MustParsePrefix("10.78.3.0/24"), netip.MustParseAddr(hostDIP)))
}

// serve starts iperf3's server and waits until it listens.
func (w *world) serve(k workload) error {
	ns := w.host
	if k == container {
		ns = w.container
	}
	cmd := exec.Command("iperf3", "--server", "--bind", k.dip(), "--port", strconv.Itoa(dipPort))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := ns.Start(cmd); err != nil {
		return err
	}
	w.servers = append(w.servers, cmd)
	address := net.JoinHostPort(k.dip(), strconv.Itoa(dipPort))
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

func (w *world) close() {
	for _, server := range w.servers {
		_ = server.Process.Kill()
		_ = server.Wait()
	}
	for _, ns := range []*netns.NS{w.client, w.network, w.host, w.container} {
		if ns != nil {
			_ = ns.Delete()
		}
	}
}

// measure takes both measurements, one after the other.
func (w *world) measure(k workload, l load, each time.Duration) (p pair, err error) {
	if p.without, err = w.iperf(k.dip(), dipPort, l, each); err != nil {
		return p, err
	}
	stop, err := w.startAgent(k)
	if err != nil {
		return p, err
	}
	p.with, err = w.iperf(k.vip(), vipPort, l, each)
	return p, errors.Join(err, stop())
}

// startAgent loads the data plane and has the network encapsulate.
func (w *world) startAgent(k workload) (stop func() error, err error) {
	var datapath *agent.Datapath
	err = w.host.Do(func() (err error) {
		datapath, err = agent.Open(agent.Config{Uplink: "uplink", PinPath: w.pins})
		return err
	})
	if err != nil {
		return nil, err
	}
	stop = datapath.Unload
	mux, err := w.fill(datapath, k)
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return func() error { return errors.Join(mux.Close(), datapath.Unload()) }, nil
}

func (w *world) fill(datapath *agent.Datapath, k workload) (*relay.Relay, error) {
	dip, vip := netip.MustParseAddr(k.dip()), netip.MustParseAddr(k.vip())
	index := 0
	if k == container {
		var err error
		if index, err = w.host.Index("w0"); err != nil {
			return nil, err
		}
	}
	err := errors.Join(
		datapath.SetMuxes([]netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(muxAddress), 32)}),
		datapath.Replace([]model.HostBackend{{
			Endpoint: model.EndpointKey{VIP: vip, Protocol: model.TCP, Port: vipPort},
			Tunnel:   dip, Backend: netip.AddrPortFrom(dip, dipPort), Slot: slot, Cookies: true,
		}}),
		w.host.Do(func() error { return datapath.SetWorkloads(map[netip.Addr]int{dip: index}) }))
	if err != nil {
		return nil, err
	}
	in, err := w.network.Index("client")
	if err != nil {
		return nil, err
	}
	out, err := w.network.Index("host")
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
	return mux, mux.Send(vip, netip.MustParseAddr(muxAddress), dip)
}

// iperf says how much arrives, and what CPU time both ends have taken for it.
func (w *world) iperf(address string, port int, l load, each time.Duration) (s sample, err error) {
	args := []string{
		"--client", address, "--port", strconv.Itoa(port), "--json",
		"--time", strconv.Itoa(int(each.Seconds())), "--parallel", strconv.Itoa(l.flows),
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
