package agent_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/mss"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
)

const (
	transferSize = 200 << 20
	patience     = 60 * time.Second

	// Bytes: of the largest outer header, of that of connections behind a tunnel of IPv4, which is in IPv6 to another backend
	// while their bucket moves (UDP, GUE with its fields, the tunnel of this one), and of TCP's option.
	outerMost, outerIPv4, timestamps = 76, 40 + 8 + 4 + 8 + 4, 12
)

// ways is what the transfers go through: VIP, and who serves it.
func (w *world) ways() map[string]struct {
	vip, dip string
	server   *netns.NS
} {
	return map[string]struct {
		vip, dip string
		server   *netns.NS
	}{
		"native v4 in v4":    {nativeVIP4, hostDIP4, w.host},
		"native v6 in v4":    {nativeVIP6, hostDIP6, w.host},
		"interface v4 in v6": {interfaceVIP4, workloadDIP4, w.workload},
		"interface v6 in v6": {interfaceVIP6, workloadDIP6, w.workload},
	}
}

// TestTransfers sends 200 MiB each way over TCP, with every offload on and with none, and wants
// every byte.
func TestTransfers(t *testing.T) {
	w := newWorld(t)
	for _, offloads := range []struct {
		name string
		set  func()
	}{
		{"all on", func() { w.offloads(true) }},
		{"all off", func() { w.offloads(false) }},
		{"merged on the way", func() {
			// The network cuts into segments, the host's GRO merges the tunnelled ones.
			w.offloads(true)
			w.must(w.network.SetOffload("host", netns.TSO, false), w.network.SetOffload("host", netns.GSO, false))
		}},
		{"cut for the workload", func() {
			// What arrives merged must be cut again.
			w.offloads(true)
			w.must(w.host.SetOffload("w0", netns.TSO, false), w.host.SetOffload("w0", netns.TxChecksum, false))
		}},
	} {
		offloads.set()
		for name, way := range w.ways() {
			t.Run(offloads.name+"/"+name, func(t *testing.T) {
				w.transfer(t, way.server, way.dip, way.vip, transferSize)
			})
		}
	}
	w.wantNoDrops()
}

// Where the host's tunnels are IPv4 alone, segments are larger; they are smaller once a tunnel is IPv6's.
func TestTransferByIPv4Alone(t *testing.T) {
	w := newWorld(t)
	w.must(w.datapath.Replace([]model.HostBackend{backend(model.TCP, nativeVIP4, hostDIP4, hostDIP4)}))
	for _, w.outer = range []int{outerIPv4, outerMost} {
		w.transfer(t, w.host, hostDIP4, nativeVIP4, transferSize)
		w.fill()
	}
	w.wantNoDrops()
}

func (w *world) wantNoDrops() {
	w.t.Helper()
	verdicts, err := w.datapath.Verdicts()
	w.must(err)
	for name, counter := range verdicts {
		if strings.HasPrefix(name, "drop_") && counter.Packets != 0 {
			w.t.Errorf("%s: %d packets", name, counter.Packets)
		}
	}
}

// transfer sends size bytes to a VIP and has as many sent back, and compares what arrives.
func (w *world) transfer(t *testing.T, server *netns.NS, dip, vip string, size int) {
	t.Helper()
	listener := listen(t, server, dip)
	defer listener.Close()
	served := make(chan error, 1)
	go func() { served <- serve(listener, size, clampedMSS(vip, 1500, w.outer)) }()

	connection := dial(t, w.client, vip)
	defer connection.Close()
	wantMSS(t, connection, vip, clampedMSS(vip, 1500, w.outer))
	if err := exchange(connection, size); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Errorf("workload: %v", err)
	}
}

func listen(t *testing.T, ns *netns.NS, address string) (listener net.Listener) {
	t.Helper()
	err := ns.Do(func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(netip.MustParseAddr(address), dipPort).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

func dial(t *testing.T, ns *netns.NS, address string) (connection *net.TCPConn) {
	t.Helper()
	err := ns.Do(func() error {
		to := netip.AddrPortFrom(netip.MustParseAddr(address), vipPort)
		dialed, err := net.DialTimeout("tcp", to.String(), 10*time.Second)
		if err != nil {
			return err
		}
		connection = dialed.(*net.TCPConn)
		return connection.SetDeadline(time.Now().Add(patience))
	})
	if err != nil {
		t.Fatal(err)
	}
	return connection
}

// serve receives and sends. Segments must be as large as the client made them, however they
// were merged and cut on the way.
func serve(listener net.Listener, size, segment int) error {
	connection, err := listener.Accept()
	if err != nil {
		return err
	}
	accepted := connection.(*net.TCPConn)
	defer accepted.Close()
	if err := accepted.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if err := receive(accepted, size); err != nil {
		return err
	}
	if info, err := tcpInfo(accepted); err != nil || int(info.Rcv_mss) != segment {
		return errors.Join(fmt.Errorf("received segments are of %d bytes, not %d", info.Rcv_mss, segment), err)
	}
	return send(accepted, size)
}

func exchange(connection *net.TCPConn, size int) error {
	if err := send(connection, size); err != nil {
		return err
	}
	if err := connection.CloseWrite(); err != nil {
		return err
	}
	return receive(connection, size)
}

// river is an endless stream of the same random bytes for everyone.
func river() io.Reader { return rand.NewChaCha8([32]byte{'w', 'e', 'i', 'r'}) }

func send(to io.Writer, size int) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, io.LimitReader(river(), int64(size)), make([]byte, 1<<18))
	return err
}

func receive(from io.Reader, size int) error {
	got, want := sha256.New(), sha256.New()
	n, err := io.Copy(got, io.LimitReader(from, int64(size)))
	if err != nil || n != int64(size) {
		return errors.Join(fmt.Errorf("received %d bytes of %d", n, size), err)
	}
	if _, err := io.CopyN(want, river(), int64(size)); err != nil {
		return err
	}
	if !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		return errors.New("received other bytes than were sent")
	}
	return nil
}

// wantMSS checks that the client's segments fit the host's link once they are encapsulated.
func wantMSS(t *testing.T, connection *net.TCPConn, vip string, want int) {
	t.Helper()
	info, err := tcpInfo(connection)
	if err != nil {
		t.Fatal(err)
	}
	if int(info.Snd_mss) != want {
		t.Errorf("MSS towards %s is %d, not %d", vip, info.Snd_mss, want)
	}
}

// clampedMSS is how much a full segment of the client holds.
func clampedMSS(vip string, mtu, outer int) int {
	return mss.For(mtu-outer, netip.MustParseAddr(vip).Is6()) - timestamps
}

func tcpInfo(connection syscall.Conn) (info *unix.TCPInfo, err error) {
	raw, err := connection.SyscallConn()
	if err != nil {
		return nil, err
	}
	failed := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	return info, errors.Join(failed, err)
}
