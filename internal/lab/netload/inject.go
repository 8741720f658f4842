package netload

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
)

// Inject puts a frame onto the link from the router to a node, addressed to the node.
func Inject(lab Lab, node string, frame []byte) error {
	if err := inject(lab, node, frame); err != nil {
		return fmt.Errorf("inject a frame at %s: %w", node, err)
	}
	return nil
}

func inject(lab Lab, node string, frame []byte) error {
	router, err := lab.NS(string(netlab.Router))
	if err != nil {
		return err
	}
	index, err := router.Index(node)
	if err != nil {
		return err
	}
	ns, err := lab.NS(node)
	if err != nil {
		return err
	}
	mac, err := ns.MAC(netlab.Uplink)
	if err != nil {
		return err
	}
	copy(frame, mac)
	return router.Do(func() error {
		socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return errors.Join(unix.Sendto(socket, frame, 0, &unix.SockaddrLinklayer{Ifindex: index}), unix.Close(socket))
	})
}
