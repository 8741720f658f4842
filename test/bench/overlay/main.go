// Command overlay measures the server's side of load-balancer bypass with the kernel's test run, as figure 15 of the paper
// on NGLB: what a session takes of memory, and the time of the programs with a million sessions, with a thousand, and of
// the agent's programs with a thousand sessions of its own. Bursts take turns; packets of a burst are of sessions at random.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

// row is a figure and its bound.
type row struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Most  float64 `json:"most"`
}

type report struct {
	Rows []row `json:"rows"`
	// Nanoseconds of the programs, one way: medians of the bursts' means.
	Times map[string]float64 `json:"times_ns"`
}

func main() {
	out := flag.String("out", "out/bench/overlay.json", "file for the results")
	rounds := flag.Int("rounds", 60, "bursts of each kind")
	many := flag.Int("sessions", 900_000, "sessions of the full table; of 2^20 rows")
	flag.Parse()
	benchlab.Main("overlay", func(ctx context.Context) error { return run(ctx, *out, *rounds, *many) })
}

func run(ctx context.Context, out string, rounds, many int) (err error) {
	ns, err := netns.Create(fmt.Sprintf("wbench-overlay%d", os.Getpid()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ns.Delete()) }()
	if err := errors.Join(netns.Veth(ns, "uplink", ns, "network")); err != nil {
		return err
	}
	return ns.Do(func() error {
		runtime.LockOSThread()
		full, err := newBypass(ns, "full", 1<<16)
		if err != nil {
			return err
		}
		defer full.close()
		memory, err := full.fill(many)
		if err != nil {
			return err
		}
		small, err := newBypass(ns, "few", 1<<16)
		if err != nil {
			return err
		}
		defer small.close()
		if _, err := small.fill(few); err != nil {
			return err
		}
		agent, err := newSessionPath(ns, few)
		if err != nil {
			return err
		}
		defer agent.close()
		times, err := measure(ctx, rounds, map[string]path{"1m": full, "1k": small, "session": agent})
		if err != nil {
			return err
		}
		return write(out, report{Times: times, Rows: append(memory,
			row{"vctk-latency-1m-to-1k", (times["1m-in"] + times["1m-out"]) / (times["1k-in"] + times["1k-out"]), 1.3},
			row{"vctk-programs-to-session-path", (times["1k-in"] + times["1k-out"]) / (times["session-in"] + times["session-out"]), 1.2})})
	})
}

// path is packets of sessions, and the programs for them.
type path interface {
	// packets are of a client and of its server.
	packets() (in, out [][]byte)
	programs() (in, out *ebpf.Program)
	close()
}

const (
	burst = 2000
	few   = 1000 // sessions of the table that is nearly empty, and of the agent
)

// measure takes turns between the paths, and returns medians of the bursts' means.
func measure(ctx context.Context, rounds int, paths map[string]path) (map[string]float64, error) {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return nil, err
	}
	defer stats.Close()
	all := map[string][]float64{}
	for range rounds {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for name, p := range paths {
			inFrames, outFrames := p.packets()
			in, out := p.programs()
			for way, b := range map[string]struct {
				program *ebpf.Program
				frames  [][]byte
			}{"-in": {in, inFrames}, "-out": {out, outFrames}} {
				mean, err := time(b.program, b.frames)
				if err != nil {
					return nil, fmt.Errorf("%s%s: %w", name, way, err)
				}
				all[name+way] = append(all[name+way], mean)
			}
		}
	}
	medians := map[string]float64{}
	for name, values := range all {
		slices.Sort(values)
		medians[name] = values[len(values)/2]
	}
	return medians, nil
}

// time is the mean time that a program takes for a burst, in ns, as the kernel counts it.
func time(program *ebpf.Program, frames [][]byte) (float64, error) {
	before, err := program.Stats()
	if err != nil {
		return 0, err
	}
	const drop = 2
	for _, frame := range frames {
		if action, err := program.Run(&ebpf.RunOptions{Data: frame}); err != nil || action == drop {
			return 0, fmt.Errorf("a packet was not taken: action %d, %w", action, err)
		}
	}
	after, err := program.Stats()
	if err != nil {
		return 0, err
	}
	return float64(after.Runtime-before.Runtime) / float64(after.RunCount-before.RunCount), nil
}

func write(out string, r report) error {
	for _, row := range r.Rows {
		fmt.Printf("%-34s %8.3f  at most %g\n", row.Name, row.Value, row.Most)
	}
	for _, name := range []string{"1k-in", "1k-out", "1m-in", "1m-out", "session-in", "session-out"} {
		fmt.Printf("%-34s %8.0f ns\n", name, r.Times[name])
	}
	return benchlab.Write(out, r)
}
