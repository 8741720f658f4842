package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

// trips are the round trips of a connection whose packets the mux counts: 20 packets, without acknowledgements alone.
const trips = 10

// connectionTurns are those of sides that their connections are divided into.
const connectionTurns = 10

// cost is what a mux has done and keeps; cpu and programs in ns. Programs are the eBPF programs alone; cpu is all that the mux's
// CPU does for packets, with what the kernel does to take and send them.
type cost struct{ packets, rows, cpu, programs float64 }

// measureConnections has connections be open at the same time (Figures 14 and 16).
func (w *world) measureConnections(ctx context.Context, how options, to *report) error {
	idle, err := w.idleCost(ctx)
	if err != nil {
		return err
	}
	costs := map[string][]cost{} // of each turn
	for range connectionTurns {
		for _, s := range w.sides {
			if s.name == device {
				continue
			}
			c, err := w.costOfEach(ctx, s, how.connections/connectionTurns, idle)
			if err != nil {
				return err
			}
			costs[s.name] = append(costs[s.name], c)
		}
	}
	median := func(of []cost, what func(cost) float64) float64 {
		var values []float64
		for _, c := range of {
			values = append(values, what(c))
		}
		return quantile(values, 2)
	}
	for name, of := range costs {
		to.Sides["mux-packets-per-connection-"+name] = median(of, func(c cost) float64 { return c.packets })
		to.Sides["mux-thread-per-connection-"+name+"-ns"] = median(of, func(c cost) float64 { return c.cpu })
		to.Sides["mux-programs-per-connection-"+name+"-ns"] = median(of, func(c cost) float64 { return c.programs })
	}
	ratio := func(name string, what func(cost) float64) row {
		var ratios []float64
		for turn, full := range costs[fullNAT] {
			ratios = append(ratios, what(full)/what(costs[bypass][turn]))
		}
		return row{Name: name, Value: quantile(ratios, 2), Low: quantile(ratios, 1), High: quantile(ratios, 3)}
	}
	to.Rows = append(to.Rows,
		row{Name: "mux-packets-per-bypassed-connection", Value: median(costs[bypass], func(c cost) float64 { return c.packets })},
		row{Name: "mux-rows-per-bypassed-connection", Value: median(costs[bypass], func(c cost) float64 { return c.rows })},
		ratio("mux-cpu-full-nat-to-bypass", func(c cost) float64 { return c.programs }),
		ratio("mux-thread-full-nat-to-bypass", func(c cost) float64 { return c.cpu }))
	return nil
}

// costOfEach is what the mux does for each of so many connections, beyond what it does in that time anyway.
func (w *world) costOfEach(ctx context.Context, s *side, connections int, idle cost) (cost, error) {
	before, err := w.cost()
	if err != nil {
		return cost{}, err
	}
	began := time.Now()
	after, err := w.costOf(ctx, s, connections)
	if err != nil {
		return cost{}, err
	}
	lasted := time.Since(began).Seconds()
	before.cpu, before.programs = before.cpu+idle.cpu*lasted, before.programs+idle.programs*lasted
	c := after.less(before, connections)
	if s.name == fullNAT && c.packets < trips {
		return c, fmt.Errorf("of a connection by full NAT %.1f packets passed the mux", c.packets)
	}
	return c, nil
}

// idleCost is what the mux does in a second for what is no client's: its sessions with router and manager.
func (w *world) idleCost(ctx context.Context) (cost, error) {
	const lasts = 5
	before, err := w.cost()
	if err != nil {
		return cost{}, err
	}
	select {
	case <-ctx.Done():
		return cost{}, ctx.Err()
	case <-time.After(lasts * time.Second):
	}
	after, err := w.cost()
	return after.less(before, lasts), err
}

// costOf opens connections, which stay open until it returns, and says what the mux has done by then.
func (w *world) costOf(ctx context.Context, s *side, connections int) (cost, error) {
	for range connections {
		e, err := s.connect()
		if err != nil {
			return cost{}, err
		}
		defer e.close()
		go echo(int(e.server.Fd()), rttBytes)
		message := make([]byte, rttBytes)
		for range trips {
			if _, err := unix.Write(int(e.client.Fd()), message); err != nil {
				return cost{}, err
			}
			if !read(int(e.client.Fd()), message) {
				return cost{}, errBroken
			}
		}
		if ctx.Err() != nil {
			return cost{}, ctx.Err()
		}
	}
	return w.cost()
}

// less is the difference, for each of so many.
func (c cost) less(before cost, count int) cost {
	n := float64(count)
	return cost{
		packets: (c.packets - before.packets) / n, rows: (c.rows - before.rows) / n,
		cpu: (c.cpu - before.cpu) / n, programs: (c.programs - before.programs) / n,
	}
}

func (w *world) cost() (c cost, err error) {
	if c.cpu, err = w.muxTime(); err != nil {
		return c, err
	}
	for _, n := range w.lab.Of(netlab.Mux) {
		packets, err := w.lab.Forwarded(n.Name)
		if err != nil {
			return c, err
		}
		used, err := benchlab.UsedBy(w.lab, n.Name, "weir-mux")
		if err != nil {
			return c, err
		}
		rows, err := w.rows(n.Name)
		if err != nil {
			return c, err
		}
		c.packets, c.rows, c.programs = c.packets+float64(packets), c.rows+float64(rows), c.programs+float64(used.Programs.Nanoseconds())
	}
	return c, nil
}

// rows are those of the flow table, of all VIPs.
func (w *world) rows(mux string) (rows uint64, err error) {
	out, err := w.lab.Run(mux, w.lab.Find("weir-mux"), "status", "--pin-path", w.lab.PinPath(mux), "-o", "json")
	if err != nil {
		return 0, err
	}
	var status struct {
		VIPs []struct{ Trusted, Untrusted *uint64 }
	}
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		return 0, fmt.Errorf("read the status of %s: %w", mux, err)
	}
	if len(status.VIPs) == 0 {
		return 0, errors.New("a mux knows no VIP")
	}
	for _, vip := range status.VIPs {
		if vip.Trusted == nil || vip.Untrusted == nil {
			return 0, errors.New("a mux does not say how many flows it has")
		}
		rows += *vip.Trusted + *vip.Untrusted
	}
	return rows, nil
}
