package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

// trips are the round trips of a connection whose packets the mux counts: 20 packets, without acknowledgements alone.
const trips = 10

// cost is what a mux has done and keeps.
type cost struct {
	packets, rows uint64
	programs      float64 // ns
}

// measureConnections has connections be open at the same time (Figures 14 and 16).
func (w *world) measureConnections(ctx context.Context, how options, to *report) error {
	before, err := w.cost()
	if err != nil {
		return err
	}
	for range how.connections {
		e, err := w.bypass.connect()
		if err != nil {
			return err
		}
		defer e.close()
		go echo(int(e.server.Fd()), rttBytes)
		message := make([]byte, rttBytes)
		for range trips {
			if _, err := unix.Write(int(e.client.Fd()), message); err != nil {
				return err
			}
			if !read(int(e.client.Fd()), message) {
				return errBroken
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	after, err := w.cost()
	if err != nil {
		return err
	}
	each := func(n float64) float64 { return n / float64(how.connections) }
	to.Rows = append(to.Rows,
		row{Name: "mux-packets-per-bypassed-connection", Value: each(float64(after.packets - before.packets))},
		row{Name: "mux-rows-per-bypassed-connection", Value: each(float64(after.rows) - float64(before.rows))})
	to.Sides["mux-programs-per-bypassed-connection-ns"] = each(after.programs - before.programs)
	return nil
}

func (w *world) cost() (c cost, err error) {
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
		c.packets, c.rows, c.programs = c.packets+packets, c.rows+rows, c.programs+float64(used.Programs.Nanoseconds())
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
