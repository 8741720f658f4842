package netlab

import (
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/lab/netns"
)

// Move takes a container to another host, with all its sockets, as live migration does. Its addresses stay what
// they are; Node goes on to name the host where it was made.
func (l *network) Move(workload, host string) error {
	n, err := l.Node(workload)
	if err != nil {
		return err
	}
	if n.Kind != Workload || n.Native {
		return fmt.Errorf("move %s: it is no container", workload)
	}
	to, err := l.Node(host)
	if err != nil {
		return err
	}
	ns, err := l.NS(workload)
	if err != nil {
		return err
	}
	there, err := l.NS(host)
	if err != nil {
		return err
	}
	router, err := l.NS(string(Router))
	if err != nil {
		return err
	}
	err = first(
		func() error { return ns.DeleteLink(Uplink) }, // and the old host's end with it
		func() error { return netns.Veth(there, n.Name, ns, Uplink) },
		func() error { return connectContainer(there, n.Name, ns, n) },
		func() error { return router.ReplaceRoute(netip.PrefixFrom(n.IPv4, 32), to.IPv4) },
		func() error { return router.ReplaceRoute(netip.PrefixFrom(n.IPv6, 128), to.IPv6) },
	)
	if err != nil {
		return fmt.Errorf("move %s to %s: %w", workload, host, err)
	}
	return nil
}
