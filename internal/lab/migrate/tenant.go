// Package migrate moves workloads of a lab's virtual networks from host to host, as live migration does.
package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/overlay"
)

// moveTime bounds how long the agent of a host takes to know a workload that comes.
const moveTime = 10 * time.Second

// Tenant takes a virtual network's workload to another host of clients, with all its sockets, and changes the network,
// which must have been applied. Node goes on to name the host where it was made.
func Tenant(ctx context.Context, l *netlab.Lab, workload, host string) error {
	n, err := l.Node(workload)
	if err != nil {
		return err
	}
	to, err := l.Node(host)
	if err != nil {
		return err
	}
	if n.Kind != netlab.Tenant || to.Kind != netlab.ClientHost {
		return fmt.Errorf("move %s to %s: that takes a workload of a virtual network, as acme1, and a host of clients, as chost2", workload, host)
	}
	there, err := l.NS(host)
	if err != nil {
		return err
	}
	if _, err := there.Index(workload); err == nil {
		return fmt.Errorf("move %s to %s: it is there", workload, host)
	}
	ns, err := l.NS(workload)
	if err != nil {
		return err
	}
	source, err := l.Node(n.Host)
	if err != nil {
		return err
	}
	network, client := overlay.Networks(l.Networks)[n.Number-1], overlay.WorkloadAt(source.Number)
	err = network.Move(there, workload, ns, client, func() error {
		return errors.Join(tell(l, network.Name+"-prod", workload, host), waitPort(ctx, l, to, workload))
	})
	if err != nil {
		return fmt.Errorf("move %s to %s: %w", workload, host, err)
	}
	return nil
}

// tell changes a network, so that its workload is on a host.
func tell(l *netlab.Lab, network, workload, host string) error {
	text, err := l.Weir("get", "network", network, "-o", "json")
	if err != nil {
		return err
	}
	var manifest map[string]any
	if err := json.Unmarshal([]byte(text), &manifest); err != nil {
		return fmt.Errorf("read network %s: %w", network, err)
	}
	spec, _ := manifest["spec"].(map[string]any)
	workloads, _ := spec["workloads"].([]any)
	at := slices.IndexFunc(workloads, func(w any) bool { return w.(map[string]any)["name"] == workload })
	if at < 0 {
		return fmt.Errorf("network %s has no workload %s", network, workload)
	}
	workloads[at].(map[string]any)["host"] = host
	changed, err := json.Marshal(manifest)
	if err != nil {
		return fmt.Errorf("write network %s: %w", network, err)
	}
	file := filepath.Join(l.Dir(), network+".json")
	if err := os.WriteFile(file, changed, 0o600); err != nil {
		return fmt.Errorf("write network %s: %w", network, err)
	}
	_, err = l.Weir("apply", "-f", file)
	return err
}

// waitPort waits until a host of clients has an interface as a port.
func waitPort(ctx context.Context, l *netlab.Lab, host netlab.Node, device string) error {
	return netlab.Poll(ctx, moveTime, func() error {
		out, err := l.Run(host.Name, l.Find("weir-agent"), "port", "ls", "--pin-path", l.PinPath(host.Name))
		if err == nil && !strings.Contains(out, "\n"+device+" ") {
			err = fmt.Errorf("%s does not know the workload at %s", host.Name, device)
		}
		return err
	})
}
