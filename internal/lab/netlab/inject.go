package netlab

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Inject puts a frame onto the link from the router to a node, addressed to the node.
func (l *Lab) Inject(node string, frame []byte) error {
	if err := l.inject(node, frame); err != nil {
		return fmt.Errorf("inject a frame at %s: %w", node, err)
	}
	return nil
}

func (l *Lab) inject(node string, frame []byte) error {
	router, err := l.NS(string(Router))
	if err != nil {
		return err
	}
	index, err := router.Index(node)
	if err != nil {
		return err
	}
	ns, err := l.NS(node)
	if err != nil {
		return err
	}
	mac, err := ns.MAC(Uplink)
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
