// Command agent measures what the agent costs a host: iperf3 between namespaces over veth, through
// the agent with cookies on, and on the same path without it, in turns; and the ratio of both.
// See docs/performance.md for how to read the numbers.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"

	"github.com/weirlb/weir/internal/testkit/benchlab"
)

func main() {
	out := flag.String("out", "out/bench/agent.json", "file for the results")
	var how options
	flag.IntVar(&how.rounds, "rounds", 21, "times that each measurement is taken")
	flag.IntVar(&how.megabytes, "megabytes", 768, "what one measurement sends")
	flag.StringVar(&how.congestion, "congestion", "cubic", "the senders' congestion control; empty: the system's")
	flag.StringVar(&how.only, "only", "", "measure only rows whose names match this regular expression, as ^1600/v4/ipip/native/8/client$")
	flag.BoolVar(&how.pairs, "pairs", false, "print every pair")
	switches := flag.Bool("switches", false, "measure what packets from switches cost, to packets from muxes, by the programs alone")
	cpu := flag.Int("turns", -1, "take turns with another process of this bench, on this CPU: see test/bench/compare")
	flag.Parse()
	bench := func() error { return run(*out, how) }
	switch {
	case *cpu >= 0:
		bench = func() error { return takeTurns(*cpu) }
	case *switches:
		bench = func() error { return compareSwitches(*out, how.rounds) }
	}
	if err := bench(); err != nil {
		fmt.Fprintf(os.Stderr, "bench agent: %v\n", err)
		os.Exit(1)
	}
}

// options say how to measure.
type options struct {
	rounds, megabytes int
	congestion, only  string
	pairs             bool
}

// load is what iperf3 is asked to send.
type load struct {
	flows   int
	replies bool // from the workload to the client
}

func (l load) sender() string {
	if l.replies {
		return "workload"
	}
	return "client"
}

// network is the one between mux and hosts.
type network struct {
	mtu int
	// wire has segments come to the host one by one, as from a NIC, so that the host's GRO merges what it can: IP-in-IP, but
	// not GUE. Else they come as the client made them, in buffers of up to 64 KiB.
	wire bool
}

const (
	roomyMTU = 1600 // has room for a client's packet and the outer header
	usualMTU = 1500
)

var networks = []network{{mtu: roomyMTU}, {mtu: usualMTU}, {mtu: roomyMTU, wire: true}}

// rows are those of a network, yet empty: with an MTU of 1600 both senders, with 1500 the client, whose segments are smaller
// for the outer header; over a wire GUE, of IPv4 alone. Of IPv6 one flow stands for more.
func rows(n network) (all []result) {
	encapsulation := ipip
	if n.wire {
		encapsulation = gue
	}
	for _, family := range []string{"v4", "v6"} {
		for _, kind := range []workload{native, container} {
			for _, l := range []load{{1, false}, {1, true}, {8, false}, {8, true}} {
				if l.replies && n != networks[0] || family == "v6" && (n.wire || l.flows > 1) {
					continue
				}
				all = append(all, result{
					MTU: n.mtu, Family: family, Encapsulation: encapsulation, Workload: kind, Flows: l.flows, Sender: l.sender(), load: l,
				})
			}
		}
	}
	return all
}

func run(out string, how options) error {
	only, err := regexp.Compile(how.only)
	if err != nil {
		return fmt.Errorf("read -only: %w", err)
	}
	var results []result
	for _, n := range networks {
		var chosen []result
		for _, r := range rows(n) {
			if only.MatchString(r.name()) {
				chosen = append(chosen, r)
			}
		}
		if len(chosen) == 0 {
			continue
		}
		if err := measure(n, chosen, how); err != nil {
			return err
		}
		results = append(results, chosen...)
	}
	if len(results) == 0 {
		return fmt.Errorf("no row's name matches %q", how.only)
	}
	printTable(os.Stdout, results)
	return benchlab.Write(out, results)
}

// measure fills the rows of a network.
func measure(n network, rows []result, how options) (err error) {
	w, err := newWorld(n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	for round := range how.rounds {
		for i := range rows {
			r := &rows[i]
			pair, err := w.measure(r, round, how)
			if err != nil {
				return fmt.Errorf("measure %s: %w", r.name(), err)
			}
			r.pairs = append(r.pairs, pair)
			if how.pairs {
				fmt.Println(r.name(), pair)
			}
		}
	}
	for i := range rows {
		rows[i].summarise()
	}
	return nil
}
