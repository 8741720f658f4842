package agent_test

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netns"
)

// TestTap puts the workload behind a tap, as a hypervisor does with a VM: buffers of 64 KiB with
// partial checksums cross it, described by a virtio header.
func TestTap(t *testing.T) {
	w := newWorld(t)
	w.must(w.host.DeleteLink("w0"))
	w.plugTap()
	w.must(w.setWorkloads())
	for name, way := range w.ways() {
		if way.server == w.workload {
			t.Run(name, func(t *testing.T) { w.transfer(t, way.server, way.dip, way.vip, transferSize) })
		}
	}
	w.wantNoDrops()
}

// plugTap joins two taps by copying frames, as a hypervisor copies between tap and guest.
func (w *world) plugTap() {
	w.t.Helper()
	outside, inside := w.tap(w.host, "w0"), w.tap(w.workload, "eth0")
	w.addressWorkload()
	var copying sync.WaitGroup
	copying.Go(func() { copyFrames(outside, inside) })
	copying.Go(func() { copyFrames(inside, outside) })
	w.t.Cleanup(func() {
		w.must(outside.Close(), inside.Close())
		copying.Wait()
	})
}

func (w *world) tap(ns *netns.NS, name string) (file *os.File) {
	w.t.Helper()
	w.must(ns.Do(func() (err error) {
		file, err = openTap(name)
		return err
	}), ns.SetUp(name))
	return file
}

// openTap makes a tap that takes and gives buffers with all offloads.
func openTap(name string) (*os.File, error) {
	const tunFTSO = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return nil, errors.Join(fmt.Errorf("make tap %s: %w", name, err), unix.Close(fd))
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tunFTSO); err != nil {
		return nil, errors.Join(fmt.Errorf("set offloads of tap %s: %w", name, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// copyFrames ends when a tap is closed.
func copyFrames(from, to *os.File) {
	buffer := make([]byte, 1<<17)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); errors.Is(err, os.ErrClosed) {
			return
		}
	}
}
