package netns

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offload is a feature of an interface, named by ethtool's command that sets it.
type Offload uint32

// Offloads.
const (
	TxChecksum Offload = unix.ETHTOOL_STXCSUM
	TSO        Offload = unix.ETHTOOL_STSO
	GSO        Offload = unix.ETHTOOL_SGSO
	GRO        Offload = unix.ETHTOOL_SGRO
)

// SetOffload switches an interface's offload on or off.
func (ns *NS) SetOffload(name string, offload Offload, on bool) error {
	value := struct{ command, data uint32 }{command: uint32(offload)}
	if on {
		value.data = 1
	}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // the rest of the kernel's struct ifreq
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:unix.IFNAMSIZ-1], name)

	err := ns.Do(func() error {
		socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(socket)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
		if errno != 0 {
			return errno
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("set offload %#x of %s in namespace %s: %w", uint32(offload), name, ns.name, err)
	}
	return nil
}
