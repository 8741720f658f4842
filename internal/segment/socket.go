package segment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Segment is an interface whose neighbors are told, and heard.
type Segment struct {
	name  string
	index int
	file  *os.File
	groups
}

// Open opens the segment of an interface.
func Open(name string) (*Segment, error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("look up interface %s: %w", name, err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket on %s: %w", name, err)
	}
	s := &Segment{name: name, index: link.Index, file: os.NewFile(uintptr(fd), "packet socket")}
	if err := s.listen(fd); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for ARP and NDP on %s: %w", name, err), s.file.Close())
	}
	s.groups = openGroups(name, link.Index)
	return s, nil
}

// listen has the socket take ARP and neighbor advertisements of others, and nothing else.
func (s *Segment) listen(fd int) error {
	const drop, whole = 0, 128
	filter, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_OUTGOING, SkipTrue: 8},
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: etherARP, SkipTrue: 5},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: etherIPv6, SkipTrue: 5},
		bpf.LoadAbsolute{Off: ethernetLength + 6, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: protocolICMPv6, SkipTrue: 3},
		bpf.LoadAbsolute{Off: ethernetLength + ipv6Length, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: ndpAdvertised, SkipTrue: 1},
		bpf.RetConstant{Val: whole},
		bpf.RetConstant{Val: drop},
	})
	if err != nil {
		return err
	}
	program := make([]unix.SockFilter, len(filter))
	for i, f := range filter {
		program[i] = unix.SockFilter{Code: f.Op, Jt: f.Jt, Jf: f.Jf, K: f.K}
	}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}); err != nil {
		return err
	}
	all := uint16(unix.ETH_P_ALL)
	return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all<<8 | all>>8, Ifindex: s.index})
}

// Announce tells all neighbors that mac has the address.
func (s *Segment) Announce(address netip.Addr, mac MAC) error {
	return s.send(announcement(address, mac))
}

// Probe asks all neighbors who has the address.
func (s *Segment) Probe(address netip.Addr, mac MAC) error { return s.send(probe(address, mac)) }

func (s *Segment) send(frame []byte) error {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { // not waiting: what has no room now is told again
		failed = unix.Sendto(int(fd), frame, 0, &unix.SockaddrLinklayer{Ifindex: s.index})
	})
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("send on %s: %w", s.name, err)
	}
	return nil
}

// Listen calls heard for what others say until ctx ends.
func (s *Segment) Listen(ctx context.Context, heard func(Claim)) error {
	stop := context.AfterFunc(ctx, func() { _ = s.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	frame := make([]byte, 256)
	for {
		n, err := s.file.Read(frame)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENETDOWN): // it is told once, and goes on when the interface is up
			continue
		case err != nil:
			return fmt.Errorf("listen on %s: %w", s.name, err)
		}
		if claim, is := claimOf(frame[:n]); is {
			heard(claim)
		}
	}
}

// Close ends it.
func (s *Segment) Close() error { return errors.Join(s.file.Close(), s.close()) }
