package netlink

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netns"
)

// program has ended so many packets.
type program struct{ ended uint64 }

func (*program) NotIP() (uint64, error)   { return 0, nil }
func (p *program) Ended() (uint64, error) { return p.ended, nil }

// TestDropsOfTheProgram has an XDP program drop all that comes to a tap, whose driver counts that as dropped on receipt.
func TestDropsOfTheProgram(t *testing.T) {
	const frames = 100
	ns := netns.New(t, "load-tap")
	fd := openTap(t, ns, "tap0")
	dropAll(t, ns, "tap0")

	p := &program{}
	l := NewLoad("tap0", p)
	must(t, ns.Do(func() error { _, err := l.Sample(); return err }))
	for range frames {
		_, err := unix.Write(fd, make([]byte, 60))
		must(t, err)
	}
	if dropped := droppedOn(t, ns, "tap0"); dropped < frames {
		t.Fatalf("the kernel has counted %d dropped frames, want the %d that the program dropped", dropped, frames)
	}
	p.ended = frames
	must(t, ns.Do(func() error {
		s, err := l.Sample()
		if s.Lost != 0 {
			t.Errorf("%d frames count as lost, though the program dropped them", s.Lost)
		}
		return err
	}))
}

// openTap makes a tap, to which frames come that are written to the descriptor.
func openTap(t *testing.T, ns *netns.NS, name string) (fd int) {
	t.Helper()
	must(t, ns.Do(func() (err error) { // a tap is where its device was opened
		fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		return err
	}))
	t.Cleanup(func() { must(t, unix.Close(fd)) })
	request, err := unix.NewIfreq(name)
	must(t, err)
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	must(t, unix.IoctlIfreq(fd, unix.TUNSETIFF, request))
	must(t, ns.SetUp(name))
	return fd
}

// dropAll attaches a program that drops every frame.
func dropAll(t *testing.T, ns *netns.NS, name string) {
	t.Helper()
	index, err := ns.Index(name)
	must(t, err)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "Dual BSD/GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}, // XDP_DROP
	})
	must(t, err)
	t.Cleanup(func() { must(t, program.Close()) })
	must(t, ns.Do(func() error {
		attached, err := link.AttachXDP(link.XDPOptions{Program: program, Interface: index, Flags: link.XDPDriverMode})
		if err == nil {
			t.Cleanup(func() { must(t, attached.Close()) })
		}
		return err
	}))
}

func droppedOn(t *testing.T, ns *netns.NS, name string) uint64 {
	t.Helper()
	link, err := ns.Netlink().LinkByName(name)
	must(t, err)
	return link.Attrs().Statistics.RxDropped
}
