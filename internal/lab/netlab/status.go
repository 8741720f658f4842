package netlab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Status is what the manager knows, as weir status -o json prints it.
type Status struct {
	Manager struct {
		Nodes []NodeStatus `json:"nodes"`
	} `json:"manager"`
	VIPs     []VIPStatus `json:"vips"`
	Warnings []string    `json:"warnings"`
}

// VIPStatus is one VIP's part.
type VIPStatus struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Status struct {
		MuxesProgrammed int `json:"muxesProgrammed"`
		MuxesTotal      int `json:"muxesTotal"`
		Endpoints       []struct {
			Backends []BackendStatus `json:"backends"`
		} `json:"endpoints"`
	} `json:"status"`
}

// BackendStatus is one backend's part.
type BackendStatus struct {
	Address         string `json:"address"`
	Health          string `json:"health"`
	Buckets         int    `json:"buckets"`
	BucketsDraining int    `json:"bucketsDraining"` // that moved away lately
}

// Backends are the backends of all the VIP's endpoints.
func (v VIPStatus) Backends() []BackendStatus {
	var all []BackendStatus
	for _, e := range v.Status.Endpoints {
		all = append(all, e.Backends...)
	}
	return all
}

// NodeStatus is one node's part.
type NodeStatus struct {
	Name             string   `json:"name"`
	NeighborPrefixes []string `json:"neighborPrefixes"`
	Status           struct {
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
func (l *cluster) Status() (Status, error) {
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

// Ready says what a node lacks until it takes part.
func (s Status) Ready(n Node) error {
	for _, known := range s.Manager.Nodes {
		if known.Name != n.Name {
			continue
		}
		if !known.Status.Connected {
			return fmt.Errorf("%s is not connected to the manager", n.Name)
		}
		if n.Kind == Mux && len(known.Status.Mux.Peers) == 0 && len(known.NeighborPrefixes) == 0 {
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

// WaitHealthy waits until no backend of the VIPs is unhealthy or unknown, and all muxes run the tables
// that say so.
func (l *cluster) WaitHealthy(ctx context.Context, bound time.Duration) error {
	return l.WaitStatus(ctx, bound, func(status Status) error {
		for _, vip := range status.VIPs {
			for _, b := range vip.Backends() {
				if b.Health != "healthy" && b.Health != "unchecked" {
					return fmt.Errorf("backend %s of %s is %s", b.Address, vip.Metadata.Name, b.Health)
				}
			}
		}
		return nil
	})
}

// WaitStatus waits until the status fits and all muxes run what it says.
func (l *cluster) WaitStatus(ctx context.Context, bound time.Duration, fits func(Status) error) error {
	return Poll(ctx, bound, func() error {
		status, err := l.Status()
		if err != nil {
			return err
		}
		for _, vip := range status.VIPs {
			if s := vip.Status; s.MuxesProgrammed < s.MuxesTotal {
				return fmt.Errorf("%s: %d of %d muxes run its tables", vip.Metadata.Name, s.MuxesProgrammed, s.MuxesTotal)
			}
		}
		return fits(status)
	})
}

// Forwarded is how many packets a mux has sent to hosts, by the counters of its data plane.
func (l *cluster) Forwarded(mux string) (packets uint64, err error) {
	verdicts, err := l.Verdicts(mux)
	for name, count := range verdicts {
		if strings.HasPrefix(name, "forward_") {
			packets += count
		}
	}
	return packets, err
}

// Verdicts is how many packets the data plane of a mux or a host gave each verdict.
func (l *cluster) Verdicts(node string) (map[string]uint64, error) {
	n, err := l.Node(node)
	if err != nil {
		return nil, err
	}
	program := "weir-mux"
	if n.Kind == Host || n.Kind == ClientHost {
		program = "weir-agent"
	}
	out, err := l.Run(node, l.Find(program), "status", "--pin-path", l.PinPath(node), "-o", "json")
	if err != nil {
		return nil, err
	}
	var status struct {
		Verdicts map[string]struct{ Packets uint64 } `json:"verdicts"`
	}
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		return nil, fmt.Errorf("read the status of %s: %w: %s", node, err, out)
	}
	packets := map[string]uint64{}
	for name, counter := range status.Verdicts {
		packets[name] = counter.Packets
	}
	return packets, nil
}

// Routed is by how many muxes the router sends a VIP.
func (l *cluster) Routed(vip netip.Addr) (muxes int, err error) {
	family := "-4"
	if vip.Is6() {
		family = "-6"
	}
	routes, err := l.Run(string(Router), "ip", family, "route", "show", vip.String())
	return strings.Count(routes, " via "), err
}

// WaitRouted waits until the router sends a VIP by that many muxes.
func (l *cluster) WaitRouted(ctx context.Context, bound time.Duration, vip netip.Addr, muxes int) error {
	return Poll(ctx, bound, func() error {
		got, err := l.Routed(vip)
		if err == nil && got != muxes {
			err = fmt.Errorf("the router sends %s by %d muxes, not %d", vip, got, muxes)
		}
		return err
	})
}
