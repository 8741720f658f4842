// Command switch measures the stand-in for a switch against the mux's floor with the kernel's test run: ns per packet that goes
// into a tunnel, of a VIP among many, and of one that is to no VIP. Bursts take turns; medians are told.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/hardware/xdp"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/testkit/benchlab"
	"github.com/weirlb/weir/internal/testkit/turns"
)

const (
	burst = 50_021 // packets; odd, so that bursts begin at all flows in turn
	flows = 4096
	cpu   = 1
)

// result is a class of packets of a family.
type result struct {
	Class  string  `json:"class"`
	Family string  `json:"family"`
	NS     float64 `json:"ns"`
	Ratio  float64 `json:"ratio"` // to the floor, harness in both
	// WithoutHarness is the ratio of what is left when the harness is taken off both.
	WithoutHarness float64 `json:"ratio_without_harness"`
}

type report struct {
	Packets []result `json:"packets"`
}

func main() {
	out := flag.String("out", "out/bench/switch.json", "file for the results")
	rounds := flag.Int("rounds", 41, "bursts of each kind")
	flag.Parse()
	benchlab.Main("switch", func(ctx context.Context) error { return run(ctx, *out, *rounds) })
}

func run(ctx context.Context, out string, rounds int) (err error) {
	ns, err := netns.Create(fmt.Sprintf("wbench-switch%d", os.Getpid()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ns.Delete()) }()
	var all report
	err = ns.Do(func() error {
		runtime.LockOSThread()
		driver, err := raise(ctx, ns)
		if err != nil {
			return err
		}
		defer driver.Close()
		for _, v6 := range []bool{false, true} {
			results, err := measure(ctx, ns, v6, rounds)
			if err != nil {
				return err
			}
			all.Packets = append(all.Packets, results...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range all.Packets {
		fmt.Printf("%-8s %s %7.1f ns  %.2f x floor  %.2f without the harness\n", r.Class, r.Family, r.NS, r.Ratio, r.WithoutHarness)
	}
	return benchlab.Write(out, all)
}

// class is a kind of packets.
type class struct {
	name   string
	frame  []byte
	action uint32
	run    *ebpf.Program
	nanos  []float64
}

// XDP's actions.
const (
	xdpPass     = 2
	xdpTX       = 3
	xdpRedirect = 4
)

// measure takes turns between the classes of a family.
func measure(ctx context.Context, ns *netns.NS, v6 bool, rounds int) ([]result, error) {
	h, err := newHarness(ns, v6)
	if err != nil {
		return nil, err
	}
	defer h.objects.Close()
	family, source, hit, miss := "v4", "10.0.0.0:40000", "203.0.113.1:80", "192.0.2.1:80"
	if v6 {
		family, source, hit, miss = "v6", "[2001:db8::a00:0]:40000", "[2001:db8:7::1]:80", "[2001:db8:9::1]:80"
	}
	frame := func(to string) []byte {
		return pkt.TCP(source, to, pkt.ACK, pkt.Payload(make([]byte, 100))).Frame()
	}
	classes := []*class{
		{name: "floor", frame: frame(hit), action: xdpTX, run: h.objects.BenchFloor},
		{name: "harness", frame: frame(hit), action: xdpPass, run: h.objects.BenchEmpty},
		{name: "hit", frame: frame(hit), action: xdpRedirect, run: h.objects.BenchSwitch},
		{name: "miss", frame: frame(miss), action: xdpPass, run: h.objects.BenchSwitch},
	}
	if err := turns.TakeCPU(cpu % runtime.NumCPU()); err != nil {
		return nil, err
	}
	for range rounds {
		for _, c := range classes {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			took, err := h.burst(c)
			if err != nil {
				return nil, err
			}
			c.nanos = append(c.nanos, took)
		}
	}
	for _, c := range classes {
		slices.Sort(c.nanos)
	}
	floor, empty := classes[0].median(), classes[1].median()
	var results []result
	for _, c := range classes {
		results = append(results, result{
			Class: c.name, Family: family, NS: c.median(), Ratio: c.median() / floor,
			WithoutHarness: (c.median() - empty) / (floor - empty),
		})
	}
	return results, nil
}

func (c *class) median() float64 { return c.nanos[len(c.nanos)/2] }

// raise makes a switch of a namespace, with a full table of VIPs, whose tunnels lie behind one neighbour.
func raise(ctx context.Context, ns *netns.NS) (*xdp.Driver, error) {
	if err := connect(ns); err != nil {
		return nil, err
	}
	driver, err := xdp.New(xdp.Config{Ports: []string{port}, Seed: 1, Configure: true})
	if err != nil {
		return nil, err
	}
	for i := range vips {
		if err := errors.Join(
			driver.Program(ctx, entry(at(netip.MustParseAddr("203.0.113.1"), i), false)),
			driver.Program(ctx, entry(at(netip.MustParseAddr("2001:db8:7::1"), i), true)),
		); err != nil {
			return nil, errors.Join(err, driver.Close())
		}
	}
	return driver, nil
}
