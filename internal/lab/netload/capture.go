package netload

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
)

// Capture counts packets on the router's interface to a node, as a tcpdump there would see them: the
// kernel counts what its filter lets through.
type Capture struct{ socket int }

// CaptureReplies counts the packets that come from a VIP, on the link of a node. On a mux's link
// there should be none.
func CaptureReplies(lab Lab, node string) (*Capture, error) {
	return openCaptureAt(lab, node, sourceField)
}

// CaptureRequests counts the packets that go to a VIP, on the link of a node.
func CaptureRequests(lab Lab, node string) (*Capture, error) {
	return openCaptureAt(lab, node, destinationField)
}

func openCaptureAt(lab Lab, node string, field addressField) (*Capture, error) {
	filter, err := bpf.Assemble(vipFilter(field))
	if err != nil {
		return nil, fmt.Errorf("capture at %s: %w", node, err)
	}
	router, err := lab.NS(string(netlab.Router))
	if err != nil {
		return nil, err
	}
	index, err := router.Index(node)
	if err != nil {
		return nil, err
	}
	c := &Capture{}
	err = router.Do(func() error {
		c.socket, err = openCapture(index, filter)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("capture at %s: %w", node, err)
	}
	return c, nil
}

func openCapture(index int, filter []bpf.RawInstruction) (int, error) {
	// Protocol 0 receives nothing until bind, when the filter stands.
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	program := make([]unix.SockFilter, len(filter))
	for i, f := range filter {
		program[i] = unix.SockFilter{Code: f.Op, Jt: f.Jt, Jf: f.Jf, K: f.K}
	}
	err = unix.SetsockoptSockFprog(socket, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: unsafe.SliceData(program)})
	if err == nil {
		protocol := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		err = unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: index})
	}
	if err != nil {
		return 0, errors.Join(err, unix.Close(socket))
	}
	return socket, nil
}

// Count is how many packets were seen since the last call.
func (c *Capture) Count() (int, error) {
	stats, err := unix.GetsockoptTpacketStats(c.socket, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, fmt.Errorf("read capture: %w", err)
	}
	return int(stats.Packets), nil // those too that did not fit into the socket
}

// Close ends the capture.
func (c *Capture) Close() error { return unix.Close(c.socket) }

// addressField is where an address stands in a frame without VLAN tag.
type addressField struct{ v4, v6 uint32 }

var (
	sourceField      = addressField{v4: 14 + 12, v6: 14 + 8}
	destinationField = addressField{v4: 14 + 16, v6: 14 + 24}
)

// vipFilter lets through packets whose address lies in VIPs4 or VIPs6.
func vipFilter(field addressField) []bpf.Instruction {
	v4, v6 := netlab.VIPs4.Addr().As4(), netlab.VIPs6.Addr().As16()
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IP, SkipFalse: 3},
		bpf.LoadAbsolute{Off: field.v4, Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: mask32(netlab.VIPs4)},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: binary.BigEndian.Uint32(v4[:]), SkipTrue: 5, SkipFalse: 6},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IPV6, SkipFalse: 5},
		bpf.LoadAbsolute{Off: field.v6, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: binary.BigEndian.Uint32(v6[:4]), SkipFalse: 3},
		bpf.LoadAbsolute{Off: field.v6 + 4, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(binary.BigEndian.Uint16(v6[4:6])), SkipFalse: 1},
		bpf.RetConstant{Val: 64},
		bpf.RetConstant{Val: 0},
	}
}

func mask32(p netip.Prefix) uint32 { return ^uint32(0) << (32 - p.Bits()) }
