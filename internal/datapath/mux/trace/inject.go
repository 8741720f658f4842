package trace

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

const actionTX = 3 // XDP_TX

// sender sends frames by an interface. The zero value is closed.
type sender struct {
	mu     sync.Mutex
	socket int // 0: none
}

func (s *sender) send(frame []byte, ifindex func() (int, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.socket == 0 {
		if err := s.open(ifindex); err != nil {
			return fmt.Errorf("open a socket for frames: %w", err)
		}
	}
	if _, err := unix.Write(s.socket, frame); err != nil {
		return fmt.Errorf("send a frame of %d bytes: %w", len(frame), err)
	}
	return nil
}

// open makes a socket that only sends: protocol 0 is nobody's.
func (s *sender) open(ifindex func() (int, error)) error {
	index, err := ifindex()
	if err != nil {
		return err
	}
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Bind(socket, &unix.SockaddrLinklayer{Ifindex: index}); err != nil {
		_ = unix.Close(socket)
		return err
	}
	s.socket = socket
	return nil
}

func (s *sender) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.socket == 0 {
		return nil
	}
	err := unix.Close(s.socket)
	s.socket = 0
	return err
}

// Inject runs the program on a frame, as if it came from the network, and sends what it makes of it.
// What the program would pass to the kernel is dropped: only packets for VIPs are injected.
func (t *Tracer) Inject(frame []byte) error {
	options := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
	action, err := t.Programs.Program.Run(options)
	if err != nil {
		return fmt.Errorf("run the program on %d bytes: %w", len(frame), err)
	}
	if action != actionTX {
		return nil
	}
	return t.Send(options.DataOut)
}

// Send sends a frame by the interface that the data plane is attached to.
func (t *Tracer) Send(frame []byte) error {
	return t.sender.send(frame, func() (int, error) {
		if t.Link() == nil {
			return 0, errors.New("the data plane is not attached")
		}
		info, err := t.Link().Info()
		if err != nil {
			return 0, err
		}
		return int(info.XDP().Ifindex), nil
	})
}
