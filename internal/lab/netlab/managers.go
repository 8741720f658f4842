package netlab

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
)

const (
	managerPort = 7400
	peerPort    = 7401
)

// ManagerURLs is where the lab's managers are, as --manager takes it.
func (l *cluster) ManagerURLs() string { return l.managerURLsFrom(0) }

// managerURLsFrom lists the managers beginning with one: nodes that begin with different ones spread their
// streams.
func (l *cluster) managerURLsFrom(first int) string {
	managers := l.Of(Manager)
	urls := make([]string, 0, len(managers))
	for i := range managers {
		urls = append(urls, managers[(first+i)%len(managers)].managerURL())
	}
	return strings.Join(urls, ",")
}

func (n Node) managerURL() string {
	return "https://" + netip.AddrPortFrom(n.IPv4, managerPort).String()
}

// startManagers starts the first manager, which founds the cluster and makes its CA, and then lets the others
// join it one after the other: a member more is taken in while all that are there work.
func (l *Lab) startManagers(ctx context.Context, startStore func(*Lab) (endpoints string, err error)) error {
	var external []string
	if startStore != nil {
		endpoints, err := startStore(l)
		if err != nil {
			return fmt.Errorf("start the store: %w", err)
		}
		external = []string{"--etcd-endpoints", endpoints}
	}
	managers := l.Of(Manager)
	for i, n := range managers {
		args := []string{
			"--name", n.Name, "--listen", fmt.Sprintf("0.0.0.0:%d", managerPort), "--data-dir", l.DataDir(n.Name),
		}
		if len(managers) > 1 {
			args[3] = netip.AddrPortFrom(n.IPv4, managerPort).String()
		}
		if len(managers) > 1 && external == nil {
			args = append(args, "--peer-listen", netip.AddrPortFrom(n.IPv4, peerPort).String())
		}
		args = append(args, external...)
		if i > 0 {
			join, err := l.token(Manager)
			if err != nil {
				return err
			}
			args = append(append(args, "--join", managers[0].managerURL()), join...)
		}
		if _, err := l.Start(n.Name, "weir-manager", args...); err != nil {
			return err
		}
		if err := l.waitManager(ctx, n); err != nil {
			return fmt.Errorf("start %s: %w", n.Name, err)
		}
	}
	return nil
}

// waitManager waits until a manager answers.
func (l *Lab) waitManager(ctx context.Context, n Node) error {
	return Poll(ctx, readyTime, func() error {
		if err := l.ended(n.Name); err != nil {
			return err
		}
		_, err := l.Run(n.Name, l.Find("weir"), "--config", l.AdminFile(), "--manager", n.managerURL(),
			"status", "-o", "json")
		return err
	})
}

// operator is the node that the command line runs on: where all managers can be reached, whichever of
// them are cut off from each other.
func (l *cluster) operator() string {
	if managers := l.Of(Manager); len(managers) == 1 {
		return managers[0].Name
	}
	return string(Router)
}
