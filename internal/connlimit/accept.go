package connlimit

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/limits"
)

const (
	// acceptBatch is how many connections are accepted between two looks whether the Listener was closed.
	acceptBatch = 256
	// acceptPause follows an accept that failed: there are no file descriptors, for one.
	acceptPause = 5 * time.Millisecond
)

// Run accepts connections until the Listener is closed. It calls accept4 itself: net.Listener registers each connection with
// the poller and sets its options before it can be refused, which costs more than to refuse it.
func (l *Listener) Run() {
	defer l.end()
	for l.acceptSome() {
	}
}

// acceptSome waits for connections and accepts some, or says that the Listener is closed.
func (l *Listener) acceptSome() (open bool) {
	var failed error
	err := l.raw.Read(func(fd uintptr) (ready bool) {
		ready, failed = l.drain(int(fd))
		return ready
	})
	if failed != nil {
		time.Sleep(acceptPause)
	}
	return err == nil
}

// drain accepts the connections that wait in the kernel's queue, acceptBatch at most, and says whether more may wait.
func (l *Listener) drain(fd int) (ready bool, err error) {
	for range acceptBatch {
		accepted, from, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
		switch {
		case err == nil:
			l.arrive(sourceOf(from), descriptor(accepted))
		case errors.Is(err, unix.EAGAIN):
			return false, nil
		case !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ECONNABORTED):
			return true, err
		}
	}
	return true, nil
}

func sourceOf(from unix.Sockaddr) netip.Prefix {
	switch a := from.(type) {
	case *unix.SockaddrInet4:
		return limits.Source(netip.AddrFrom4(a.Addr))
	case *unix.SockaddrInet6:
		return limits.Source(netip.AddrFrom16(a.Addr))
	}
	return netip.Prefix{}
}

// socket is an accepted connection, which costs little until it is opened.
type socket interface {
	open() (net.Conn, error) // or closes it
	gone() bool              // the client has closed it
	close()
}

// descriptor is the file descriptor of a socket in blocking mode.
type descriptor int

var errGone = errors.New("the client is gone")

// open makes it a connection of net.
func (d descriptor) open() (net.Conn, error) {
	file := os.NewFile(uintptr(d), "connection")
	defer file.Close()
	opened, err := net.FileConn(file)
	if err == nil && opened.RemoteAddr() == nil {
		opened.Close()
		return nil, errGone
	}
	return opened, err
}

func (d descriptor) gone() bool {
	poll := []unix.PollFd{{Fd: int32(d), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0
}

// close resets it: the kernel is to remember nothing of a connection that is refused.
func (d descriptor) close() {
	unix.SetsockoptLinger(int(d), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) //nolint:errcheck // then it ends with a FIN
	unix.Close(int(d))
}
