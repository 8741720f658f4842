package main

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

const (
	labName = "benchsnat"
	heavy   = "host1-w3"
)

// VIPs, one each: of who opens connections for the set-up, of each normal workload, of the heavy one.
var (
	setupVIPs  = []string{"203.0.113.50", "203.0.113.51", "203.0.113.52"}
	normalVIPs = []string{"203.0.113.60", "203.0.113.61", "203.0.113.62", "203.0.113.63"}
	heavyVIP   = "203.0.113.69"
)

// Who opens connections for which part of the set-up. All are containers.
var setupWorkloads = []string{"host2-w1", "host2-w3", "host2-w5"}

// world is a lab with a server outside.
type world struct {
	lab    *netlab.Lab
	server netip.AddrPort
}

func newWorld(ctx context.Context, bin string) (*world, error) {
	lab, err := benchlab.Up(ctx, bin, netlab.Config{
		Plan: netlab.Plan{Name: labName, Clients: 1, Muxes: 2, Hosts: 3, Workloads: 9, Outside: 1},
	})
	if err != nil {
		return nil, err
	}
	w := &world{lab: lab}
	outside, err := lab.Node("outside1")
	if err != nil {
		return nil, err
	}
	w.server = netip.AddrPortFrom(outside.IPv4, netlab.EchoPort)
	return w, w.apply(ctx)
}

// normalWorkloads are on another host than the heavy one, and on the same.
func normalWorkloads() []string { return []string{"host1-w1", "host1-w5", "host3-w1", "host3-w3"} }

func (w *world) apply(ctx context.Context) error {
	var b strings.Builder
	vip := func(name, address, settings string, workloads ...string) error {
		fmt.Fprintf(&b, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: %s}\nspec:\n  address: '%s'\n  snat:\n    except: [none]\n    %s\n    workloads:\n", name, address, settings)
		for _, workload := range workloads {
			n, err := w.lab.Node(workload)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "    - {address: '%s', host: %s}\n", n.IPv4, n.Host)
		}
		return nil
	}
	for i, workload := range setupWorkloads {
		if err := vip(fmt.Sprintf("setup-%d", i), setupVIPs[i], "preallocate: 0\n    maxPorts: 32768", workload); err != nil {
			return err
		}
	}
	vips := append([]string{heavyVIP}, setupVIPs...)
	for i, workload := range normalWorkloads() {
		if err := vip(fmt.Sprintf("normal-%d", i), normalVIPs[i], "maxPorts: 4096", workload); err != nil {
			return err
		}
		vips = append(vips, normalVIPs[i])
	}
	if err := vip("heavy", heavyVIP, "maxPorts: 4096", heavy); err != nil {
		return err
	}
	var announced []netip.Addr
	for _, text := range vips {
		announced = append(announced, netip.MustParseAddr(text))
	}
	return benchlab.Apply(ctx, w.lab, b.String(), announced...)
}

func (w *world) ns(workload string) (*netns.NS, error) { return w.lab.NS(workload) }

// requests is how many port requests the host's agent has made for the workload.
func (w *world) requests(workload string) (int, error) {
	n, err := w.lab.Node(workload)
	if err != nil {
		return 0, err
	}
	text, err := w.lab.Run(n.Host, "curl", "--silent", "--fail", "http://127.0.0.1:7412/metrics")
	if err != nil {
		return 0, fmt.Errorf("read the metrics of %s: %w", n.Host, err)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "weir_agent_snat_requests_total") && strings.Contains(line, `"`+n.IPv4.String()+`"`) {
			fields := strings.Fields(line)
			count, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			return int(count), err
		}
	}
	return 0, nil
}
