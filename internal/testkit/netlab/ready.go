package netlab

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Bound on how long a lab's programs take until they work together.
const readyTime = 45 * time.Second

// Poll asks until the answer is no error, or the bound is over.
func Poll(ctx context.Context, bound time.Duration, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("gave up: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (l *Lab) waitManager(ctx context.Context) error {
	return Poll(ctx, readyTime, func() error {
		if err := l.ended(string(Manager)); err != nil {
			return err
		}
		_, err := l.Weir("status", "-o", "json")
		return err
	})
}

// WaitReady waits until the manager knows all nodes, and the router all muxes.
func (l *Lab) WaitReady(ctx context.Context) error {
	return Poll(ctx, readyTime, func() error {
		status, err := l.Status()
		if err != nil {
			return err
		}
		for _, n := range append(l.Of(Mux), l.Of(Host)...) {
			if err := l.ended(n.Name); err != nil {
				return err
			}
			if err := status.ready(n); err != nil {
				return err
			}
		}
		return nil
	})
}

// ended says why a node's program is gone, if it is.
func (l *Lab) ended(node string) error {
	l.mu.Lock()
	processes := l.processes
	l.mu.Unlock()
	for _, p := range processes {
		if p.Node == node && !p.Running() {
			log := strings.TrimSpace(l.Log(node, p.Name))
			return fmt.Errorf("%s on %s has ended: %s", p.Name, node, log[strings.LastIndexByte(log, '\n')+1:])
		}
	}
	return nil
}

// Status is what the manager knows, as weir status -o json prints it.
type Status struct {
	Manager struct {
		Nodes []NodeStatus `json:"nodes"`
	} `json:"manager"`
	Warnings []string `json:"warnings"`
}

// NodeStatus is one node's part.
type NodeStatus struct {
	Name   string `json:"name"`
	Status struct {
		Connected bool `json:"connected"`
		Mux       struct {
			Peers []struct {
				State string `json:"state"`
				BFD   string `json:"bfd"`
			} `json:"peers"`
		} `json:"mux"`
	} `json:"status"`
}

// Status asks the manager.
func (l *Lab) Status() (Status, error) {
	var s Status
	out, err := l.Weir("status", "-o", "json")
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return s, fmt.Errorf("read status: %w: %s", err, out)
	}
	return s, nil
}

func (s Status) ready(n Node) error {
	for _, known := range s.Manager.Nodes {
		if known.Name != n.Name {
			continue
		}
		if !known.Status.Connected {
			return fmt.Errorf("%s is not connected to the manager", n.Name)
		}
		if n.Kind == Mux && len(known.Status.Mux.Peers) == 0 {
			return fmt.Errorf("%s has not reported its BGP session yet", n.Name)
		}
		for _, peer := range known.Status.Mux.Peers {
			if peer.State != "established" || peer.BFD != "up" {
				return fmt.Errorf("%s: BGP is %s, BFD is %s", n.Name, peer.State, peer.BFD)
			}
		}
		return nil
	}
	return fmt.Errorf("the manager does not know %s yet", n.Name)
}
