package mptcp

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Subflow is one of a connection, as the client's kernel has it.
type Subflow struct {
	Local, Remote netip.AddrPort
	Established   bool
	Segments      uint32 // that came
	Bytes         uint64 // likewise, of data
	MinRTT        time.Duration
}

// The kernel's struct mptcp_full_info without what follows its pointers, and struct mptcp_subflow_info (linux/mptcp.h).
type (
	fullInfo struct {
		kernelTCPInfo, userTCPInfo uint32
		kernelSubflow, userSubflow uint32
		subflows, room             uint32
		subflowInfo, tcpInfo       uint64 // addresses
	}
	subflowInfo struct {
		_             uint32 // number within the connection
		_             uint32
		local, remote [128]byte // struct sockaddr_storage
	}
)

const (
	optionFullInfo = 4 // MPTCP_FULL_INFO
	established    = 1 // TCP_ESTABLISHED
)

// Subflows are those of a connection of Multipath TCP that have not ended.
func Subflows(conn *net.TCPConn) (all []Subflow, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { all, failed = subflowsOf(fd) })
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, fmt.Errorf("ask for the subflows of %s: %w", conn.LocalAddr(), err)
	}
	return all, nil
}

func subflowsOf(fd uintptr) ([]Subflow, error) {
	var (
		info   [mostPaths + 1]subflowInfo
		tcp    [mostPaths + 1]unix.TCPInfo
		pinned runtime.Pinner
	)
	pinned.Pin(&info)
	pinned.Pin(&tcp)
	defer pinned.Unpin()
	full := fullInfo{
		userTCPInfo: uint32(unsafe.Sizeof(tcp[0])), userSubflow: uint32(unsafe.Sizeof(info[0])), room: uint32(len(info)),
		subflowInfo: uint64(uintptr(unsafe.Pointer(&info))), tcpInfo: uint64(uintptr(unsafe.Pointer(&tcp))),
	}
	length := uint32(unsafe.Sizeof(full))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_MPTCP, optionFullInfo,
		uintptr(unsafe.Pointer(&full)), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return nil, errno
	}
	var all []Subflow
	for i := range min(int(full.subflows), len(info)) {
		all = append(all, Subflow{
			Local: addrPort(info[i].local), Remote: addrPort(info[i].remote), Established: tcp[i].State == established,
			Segments: tcp[i].Segs_in, Bytes: tcp[i].Bytes_received, MinRTT: time.Duration(tcp[i].Min_rtt) * time.Microsecond,
		})
	}
	return all, nil
}

// addrPort reads a struct sockaddr_in or sockaddr_in6.
func addrPort(from [128]byte) netip.AddrPort {
	port := binary.BigEndian.Uint16(from[2:])
	if binary.NativeEndian.Uint16(from[:]) == unix.AF_INET6 {
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(from[8:24])).Unmap(), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(from[4:8])), port)
}
