// Package fabriclab has VIPs move between the switches of a lab's fabric and its muxes, and parts of the fabric fail, under
// connections that hold on: TCP with and without timestamps, and UDP.
package fabriclab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirlb/weir/internal/lab/clos"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/lab/stream"
	"github.com/weirlb/weir/internal/lab/switches"
)

const (
	// Bound is how long anything may take.
	Bound = time.Minute
	// Port is what VIPs serve, TCP and UDP.
	Port = 8080
)

// Plan is the lab's, with clients for all classes of streams.
func Plan(name, fabric string, hosts int) netlab.Plan {
	return netlab.Plan{Name: name, Clients: 2, Muxes: 2, Hosts: hosts, Workloads: 2, Fabric: fabric}
}

// class is a kind of stream, and the client that holds it.
type class struct {
	name    string
	client  string
	network stream.Network
}

var classes = []class{{"TCP with timestamps", "client1", stream.TCP}, {"TCP without", "client2", stream.TCP}, {"UDP", "client2", stream.UDP}}

// VIP is one, and the switches that serve it; none: muxes do.
type VIP struct {
	Name     string
	Address  netip.Addr
	Switches []string
	Behind   []string // switches that these send to, each behind a TIP of its own
}

// TIP is that of the switch of a number in Behind.
func TIP(n int) netip.Addr {
	a := switches.TIPs.Addr().As4()
	a[3] = byte(n + 1)
	return netip.AddrFrom4(a)
}

// World is a lab, its VIPs, and the streams that hold on.
type World struct {
	*netlab.Lab
	VIPs    []VIP
	Drained string // workload that takes no new connections
	held    map[string]*netload.Streams
}

// New begins with VIPs that muxes serve.
func New(ctx context.Context, lab *netlab.Lab, vips int) (*World, error) {
	w := &World{Lab: lab, held: map[string]*netload.Streams{}}
	for i := range vips {
		w.VIPs = append(w.VIPs, VIP{Name: fmt.Sprintf("web%d", i), Address: netip.AddrFrom4([4]byte{203, 0, 113, byte(80 + i)})})
	}
	ns, err := lab.NS("client2")
	if err != nil {
		return nil, err
	}
	if err := ns.Sysctl("net.ipv4.tcp_timestamps", "0"); err != nil {
		return nil, err
	}
	if err := w.addSources(); err != nil {
		return nil, err
	}
	if err := w.Apply(ctx); err != nil {
		return nil, err
	}
	if err := w.waitAggregate(ctx); err != nil {
		return nil, err
	}
	return w, lab.WaitHealthy(ctx, Bound)
}

// source is where a client's streams to a VIP come from: backends tell connections of two VIPs apart by nothing else.
func (w *World) source(client string, v VIP) (netip.Addr, error) {
	n, err := w.Node(client)
	if err != nil {
		return netip.Addr{}, err
	}
	number := slices.IndexFunc(w.VIPs, func(other VIP) bool { return other.Name == v.Name })
	a := n.IPv4.As4()
	a[3] += byte(number)
	return netip.AddrFrom4(a), nil
}

// addSources gives clients an address for each VIP.
func (w *World) addSources() error {
	for _, client := range []string{classes[0].client, classes[1].client} {
		ns, err := w.NS(client)
		if err != nil {
			return err
		}
		for _, v := range w.VIPs[1:] {
			source, err := w.source(client, v)
			if err != nil {
				return err
			}
			if err := ns.AddAddress(netlab.Uplink, netip.PrefixFrom(source, 24)); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitAggregate waits until all routers have heard of the muxes' aggregate.
func (w *World) waitAggregate(ctx context.Context) error {
	return netlab.Poll(ctx, Bound, func() error {
		for _, router := range append(w.names(netlab.Switch), string(netlab.Router)) {
			ns, err := w.NS(router)
			if err != nil {
				return err
			}
			ways, err := clos.Ways(ns, netlab.VIPs4)
			if err == nil && ways == 0 {
				err = fmt.Errorf("%s has no route to %s", router, netlab.VIPs4)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Apply applies all VIPs as they are now, and waits until muxes run them and switches serve them.
func (w *World) Apply(ctx context.Context) error {
	if err := w.Write(); err != nil {
		return err
	}
	return w.WaitPlaced(ctx)
}

// Write applies all VIPs as they are now, and waits until muxes run them.
func (w *World) Write() error {
	file := filepath.Join(w.Dir(), "vips.yaml")
	if err := os.WriteFile(file, []byte(w.Manifest(w.VIPs...)), 0o600); err != nil {
		return err
	}
	if out, err := w.Weir("apply", "-f", file, "--wait"); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// Manifest has VIPs with all workloads as backends.
func (w *World) Manifest(vips ...VIP) string {
	var backends, all strings.Builder
	for _, n := range w.Of(netlab.Workload) {
		weight := 1
		if n.Name == w.Drained {
			weight = 0
		}
		tunnel := n.IPv4
		if w.SwitchDriver == "linux" { // it has no others
			tunnel = n.IPv6
		}
		fmt.Fprintf(&backends, "    - {host: %s, address: '%s', tunnel: '%s', port: %d, weight: %d}\n", n.Host, n.IPv4, tunnel, netlab.EchoPort, weight)
	}
	for _, v := range vips {
		hardware := "{placement: never}"
		if len(v.Switches) > 0 {
			var tips []string
			for i, name := range v.Behind {
				tips = append(tips, fmt.Sprintf("{switch: %s, address: %s}", name, TIP(i)))
			}
			hardware = fmt.Sprintf("{placement: require, switches: [%s], tips: [%s]}", strings.Join(v.Switches, ", "), strings.Join(tips, ", "))
		}
		fmt.Fprintf(&all, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: %s}\nspec:\n  address: '%s'\n  hardware: %s\n  endpoints:\n"+
			"  - protocol: TCP\n    port: %d\n    backends:\n%[5]s  - protocol: UDP\n    port: %[4]d\n    backends:\n%[5]s",
			v.Name, v.Address, hardware, Port, backends.String())
	}
	return all.String()
}

// Place has switches serve all VIPs, or the muxes.
func (w *World) Place(ctx context.Context, switches ...string) error {
	return w.PlaceBehind(ctx, nil, switches...)
}

// PlaceBehind has switches serve all VIPs that send them to others, behind TIPs.
func (w *World) PlaceBehind(ctx context.Context, behind []string, switches ...string) error {
	for i := range w.VIPs {
		w.VIPs[i].Switches, w.VIPs[i].Behind = switches, behind
	}
	return w.Apply(ctx)
}

// WaitPlaced waits until each VIP is in its switches, and in no other.
func (w *World) WaitPlaced(ctx context.Context) error {
	return netlab.Poll(ctx, Bound, func() error {
		phases, err := w.Phases()
		if err != nil {
			return err
		}
		for _, v := range w.VIPs {
			for name, phase := range phases[v.Name] {
				wanted := slices.Contains(v.Switches, name) || slices.Contains(v.Behind, name)
				if wanted && phase != "hardware" || !wanted && phase != "leaving" {
					return fmt.Errorf("%s is %s at %s", v.Name, phase, name)
				}
			}
			for _, name := range slices.Concat(v.Switches, v.Behind) {
				if phases[v.Name][name] == "" {
					return fmt.Errorf("%s has no place at %s", v.Name, name)
				}
			}
		}
		return nil
	})
}

// Phases are those of all VIPs at switches, by both names.
func (w *World) Phases() (map[string]map[string]string, error) {
	out, err := w.Weir("placement")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	phases := map[string]map[string]string{}
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) >= 4 && fields[0] != "VIP" {
			if phases[fields[0]] == nil {
				phases[fields[0]] = map[string]string{}
			}
			phases[fields[0]][fields[2]] = fields[3]
		}
	}
	return phases, nil
}

// WaitConnected waits until a switch has its stream to a manager.
func (w *World) WaitConnected(ctx context.Context, name string) error {
	n, err := w.Node(name)
	if err != nil {
		return err
	}
	return netlab.Poll(ctx, Bound, func() error {
		status, err := w.Status()
		if err != nil {
			return err
		}
		return status.Ready(n)
	})
}

// Load says what the streams do.
type Load struct {
	Streams            int // of each class, to each VIP
	Interval, Patience time.Duration
}

// Hold opens streams of all classes, which hold on from now.
func (w *World) Hold(ctx context.Context, name string, load Load) error {
	return w.hold(ctx, name, load, classes)
}

// HoldTimestamps opens streams of TCP with timestamps alone.
func (w *World) HoldTimestamps(ctx context.Context, name string, load Load) error {
	return w.hold(ctx, name, load, classes[:1])
}

func (w *World) hold(ctx context.Context, name string, load Load, classes []class) error {
	for _, v := range w.VIPs {
		for _, c := range classes {
			source, err := w.source(c.client, v)
			if err != nil {
				return err
			}
			run, err := netload.StartStreams(ctx, w, c.client, stream.Config{
				Network: c.network, Source: source, Target: netip.AddrPortFrom(v.Address, Port), Streams: load.Streams, Interval: load.Interval, Patience: load.Patience,
			})
			if err != nil {
				return err
			}
			w.held[name+": "+v.Name+": "+c.name] = run
		}
	}
	for _, run := range w.held {
		if err := run.WaitOpened(ctx, Bound); err != nil {
			return err
		}
	}
	return nil
}

// Held is what became of streams.
type Held struct {
	Name   string        `json:"name"`
	Result stream.Result `json:"result"`
}

// Release ends all streams: each must answer once more.
func (w *World) Release() (all []Held, err error) {
	for name, run := range w.held {
		result, failed := run.Stop()
		err = errors.Join(err, failed)
		all = append(all, Held{name, result})
	}
	clear(w.held)
	slices.SortFunc(all, func(a, b Held) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}
