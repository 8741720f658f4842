package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

// size says how much of everything a world has.
type size struct {
	replicas, vips, muxes, agents, switches int

	tenants int    // with quotas, that the VIPs are of; 0: all are of the default one
	alone   bool   // the agents are away while the VIPs are loaded
	weir    string // the command line that loads the VIPs; empty: the bench does by itself
}

// String is "5 replicas, 1000 VIPs, 8 muxes, 1000 agents".
func (s size) String() string {
	text := fmt.Sprintf("%d replicas, %d VIPs, %d muxes, %d agents", s.replicas, s.vips, s.muxes, s.agents)
	if s.switches > 0 {
		text += fmt.Sprintf(", %d switches", s.switches)
	}
	return text
}

// world is a control plane with nodes.
type world struct {
	size
	dir      string
	binary   string
	managers []*managerProcess
	client   *rpc.Client
	nodes    sync.WaitGroup
	stop     context.CancelFunc
	leave    func() // ends the streams of all agents
	muxes    []*mux
	agents   []*agent
	switches []*device
	results  []result
}

// managerProcess is a weir-manager.
type managerProcess struct {
	name, address, peer, metrics string
	command                      *exec.Cmd
}

func (p *managerProcess) url() string { return "http://" + p.address }

func newWorld(ctx context.Context, binary string, of size) (w *world, err error) {
	w = &world{size: of, binary: binary}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.dir, err = os.MkdirTemp("", "weir-bench-manager-"); err != nil {
		return w, err
	}
	var urls []string
	for i := range of.replicas {
		p, err := w.startManager(ctx, i)
		if err != nil {
			return w, err
		}
		w.managers = append(w.managers, p)
		urls = append(urls, p.url())
	}
	if w.client, err = rpc.NewClient(strings.Join(urls, ",")); err != nil {
		return w, err
	}
	running, stop := context.WithCancel(ctx)
	w.stop = stop
	begin := time.Now()
	if err := w.startNodes(running, urls); err != nil {
		return w, err
	}
	fmt.Fprintf(os.Stderr, "  nodes connected in %s\n", time.Since(begin).Round(time.Millisecond))
	if !of.alone {
		return w, w.load(ctx)
	}
	w.leave()
	if err := w.load(ctx); err != nil {
		return w, err
	}
	begin = time.Now()
	err = w.startAgents(running)
	w.add("all agents connect, and have their snapshots", []time.Duration{time.Since(begin)})
	return w, err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it listens on loopback for an instant
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// startManager starts replica i, which joins the first one, and returns when it answers, and has a vote.
func (w *world) startManager(ctx context.Context, i int) (*managerProcess, error) {
	p := &managerProcess{name: "m" + strconv.Itoa(i+1)}
	for _, address := range []*string{&p.address, &p.peer, &p.metrics} {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		*address = "127.0.0.1:" + strconv.Itoa(port)
	}
	var join []string
	if i > 0 {
		join = []string{"--join", w.managers[0].url()}
	}
	return p, w.launch(ctx, p, join...)
}

// options are the daemon's flags that a version of it may not have.
func (w *world) has(flag string) bool {
	help, err := exec.Command(w.binary, "--help").CombinedOutput() //nolint:noctx // it prints and ends
	return err == nil && strings.Contains(string(help), flag)
}

func (w *world) launch(ctx context.Context, p *managerProcess, more ...string) error {
	args := append([]string{"--name", p.name, "--listen", p.address, "--data-dir", filepath.Join(w.dir, p.name), "--log-level", "warn"}, more...)
	if w.replicas > 1 {
		args = append(args, "--peer-listen", p.peer)
	}
	if w.has("--insecure") {
		args = append(args, "--insecure")
	}
	if w.has("--metrics-listen") {
		args = append(args, "--metrics-listen", p.metrics)
	}
	p.command = exec.Command(w.binary, args...) //nolint:noctx // it is ended by close
	p.command.Stderr = os.Stderr
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		return err
	}
	return poll(ctx, time.Minute, "manager "+p.name+" answers", func() bool {
		response, err := http.Get(p.url() + "/healthz") //nolint:noctx // bounded by poll
		if err != nil {
			return false
		}
		defer response.Body.Close()
		io.Copy(io.Discard, response.Body) //nolint:errcheck // what it says does not matter
		return response.StatusCode == http.StatusOK
	})
}

func (w *world) close() {
	if w.stop != nil {
		w.stop()
	}
	w.nodes.Wait()
	if w.client != nil {
		w.client.Close()
	}
	for _, p := range w.managers {
		p.command.Process.Signal(syscall.SIGSTOP) //nolint:errcheck // it may have ended; none shall tell that others do
	}
	for _, p := range w.managers {
		p.command.Process.Kill() //nolint:errcheck // likewise
		p.command.Wait()         //nolint:errcheck // it was killed
	}
	os.RemoveAll(w.dir)
}

// poll waits until done says so.
func poll(ctx context.Context, limit time.Duration, what string, done func() bool) error {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if done() {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("waited in vain until %s", what)
}

// startNodes starts muxes and agents, each with one of the managers first, and waits until all are connected.
func (w *world) startNodes(ctx context.Context, urls []string) error {
	shared := map[string]*rpc.Client{}
	client := func(i int, alone bool) (*rpc.Client, error) {
		at := i % len(urls)
		order := strings.Join(slices.Concat(urls[at:], urls[:at]), ",")
		if alone {
			return rpc.NewClient(order)
		}
		// One that goes to another manager takes along all that share its connection.
		key := fmt.Sprint(at, "/", i/(20*len(urls)))
		if shared[key] != nil {
			return shared[key], nil
		}
		c, err := rpc.NewClient(order)
		shared[key] = c
		return c, err
	}
	// Of more than these, 20 share a connection: the limit of open files of one process.
	alone := w.size.agents+w.size.switches <= 4000
	for i := range w.size.muxes {
		c, err := client(i, true)
		if err != nil {
			return err
		}
		w.muxes = append(w.muxes, newMux(fmt.Sprintf("mux%d", i+1), fmt.Sprintf("10.1.0.%d", i+1), c))
	}
	for i := range w.size.agents {
		c, err := client(i, alone)
		if err != nil {
			return err
		}
		w.agents = append(w.agents, newAgent(benchlab.HostName(i), fmt.Sprintf("10.2.%d.%d", i/250, i%250+1), c))
	}
	for i := range w.size.switches {
		c, err := client(i, alone)
		if err != nil {
			return err
		}
		w.switches = append(w.switches, newDevice(i, c))
	}
	for _, d := range w.switches {
		w.nodes.Go(func() { d.run(ctx) })
	}
	for _, m := range w.muxes {
		w.nodes.Go(func() { m.run(ctx) })
	}
	return w.startAgents(ctx)
}

// startAgents has the agents connect, and waits until all nodes are.
func (w *world) startAgents(ctx context.Context) error {
	running, leave := context.WithCancel(ctx)
	var agents sync.WaitGroup
	w.leave = func() {
		leave()
		agents.Wait()
		for _, a := range w.agents {
			a.generation.Store(0)
		}
	}
	for _, a := range w.agents {
		agents.Go(func() { a.run(running, time.Duration(rand.N(int64(time.Second)))) })
	}
	w.nodes.Go(agents.Wait)
	return poll(ctx, 10*time.Minute, "all nodes are connected", func() bool {
		return !slices.ContainsFunc(w.muxes, func(m *mux) bool { return m.generation() == 0 }) &&
			!slices.ContainsFunc(w.switches, func(d *device) bool { return d.runs.Load() == 0 }) &&
			!slices.ContainsFunc(w.agents, func(a *agent) bool { return a.generation.Load() == 0 })
	})
}

// vip is VIP number i; its backends are moved by round.
func (w *world) vip(i, round int) *weirv1.VIP {
	return benchlab.VIP(i, round, w.size.agents, w.tenant(i))
}

// tenant is that of VIP number i.
func (w *world) tenant(i int) string {
	if w.tenants == 0 {
		return ""
	}
	return fmt.Sprintf("tenant%d", i%w.tenants)
}

// makeTenants makes those that VIPs are of, each with a quota of everything.
func (w *world) makeTenants(ctx context.Context) error {
	most := uint32(1 << 30)
	var all []*weirv1.Tenant
	for i := range w.tenants {
		all = append(all, &weirv1.Tenant{Name: w.tenant(i), Quotas: &weirv1.Quotas{Vips: &most, Endpoints: &most, Backends: &most, Ports: &most}})
	}
	if len(all) == 0 {
		return nil
	}
	_, err := w.client.ApplyTenants(ctx, &weirv1.ApplyTenantsRequest{Tenants: all})
	return err
}

// manifest is VIP number i as it is loaded.
func (w *world) manifest(i int) *weirv1.VIP {
	if w.size.switches > 0 {
		return (&devices{world: w}).hardwareVIP(i, 0)
	}
	return w.vip(i, 0)
}

// load applies all VIPs and waits until the muxes run them.
func (w *world) load(ctx context.Context) error {
	begin := time.Now()
	if err := w.makeTenants(ctx); err != nil {
		return fmt.Errorf("make tenants: %w", err)
	}
	if w.weir != "" {
		if err := w.loadByFile(ctx); err != nil {
			return err
		}
		w.add("weir apply --wait of one file", []time.Duration{time.Since(begin)})
		return nil
	}
	const atOnce = 1000
	var generation uint64
	for i := 0; i < w.vips; i += atOnce {
		var some []*weirv1.VIP
		for j := i; j < min(i+atOnce, w.vips); j++ {
			some = append(some, w.manifest(j))
		}
		r, err := w.client.ApplyVIPs(ctx, &weirv1.ApplyVIPsRequest{Vips: some})
		if err != nil {
			return fmt.Errorf("load VIPs from %d on: %w", i, err)
		}
		generation = r.GetGeneration()
	}
	fmt.Fprintf(os.Stderr, "  loaded in %s\n", time.Since(begin).Round(time.Millisecond))
	return poll(ctx, 5*time.Minute, "the muxes run all VIPs", func() bool {
		return !slices.ContainsFunc(w.muxes, func(m *mux) bool { return m.generation() < generation })
	})
}

// loadByFile has the command line apply all VIPs, as a user does, and wait for the muxes.
func (w *world) loadByFile(ctx context.Context) error {
	var text bytes.Buffer
	for i := range w.vips {
		vip := w.vip(i, 0)
		fmt.Fprintf(&text, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: %s}\nspec:\n  address: %s\n", vip.GetName(), vip.GetAddress())
		text.WriteString("  endpoints:\n    - protocol: TCP\n      port: 80\n      healthCheck: {tcp: {}, interval: 10s}\n      backends:\n")
		for _, b := range vip.GetEndpoints()[0].GetBackends() {
			fmt.Fprintf(&text, "        - {host: %s, address: %s, port: %d}\n", b.GetHost(), b.GetAddress(), b.GetPort())
		}
	}
	file := filepath.Join(w.dir, "vips.yaml")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, w.weir, "--manager", w.managers[0].url(), "apply", "-f", file, "--wait", "--timeout", "5m")
	command.Stderr = os.Stderr
	return command.Run()
}
