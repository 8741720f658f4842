package main

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/daemon"
	"github.com/weirlb/weir/internal/lab/frr"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/fakemanager"
	"github.com/weirlb/weir/internal/wire"
)

// The topology of these tests. weir-mux is a process of this test binary, the router a real FRR; the
// manager is played by the test, and the host counts what arrives in the tunnel.
//
//	client 10.1.0.2 ── 10.1.0.1 router 10.3.0.1 ── 10.3.0.2 host (tunnel)
//	                            10.2.0.1
//	                               │
//	                            10.2.0.2 mux: weir-mux, XDP on eth0
var (
	vip  = netip.MustParseAddr("203.0.113.10")
	host = netip.MustParseAddr("10.3.0.2")
)

// TestMain is weir-mux when it is called as such.
func TestMain(m *testing.M) {
	if os.Getenv("WEIR_TEST_MUX") != "" {
		os.Exit(daemon.Run(command()))
	}
	os.Exit(m.Run())
}

// lab is the topology.
type lab struct {
	t                         *testing.T
	client, router, mux, host *netns.NS
	frr                       *frr.Router
	manager                   *fakemanager.Manager
	pinPath, dataDir          string
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{
		t: t, client: netns.New(t, "muxd-client"), router: netns.New(t, "muxd-router"),
		mux: netns.New(t, "muxd-mux"), host: netns.New(t, "muxd-host"),
		pinPath: "/sys/fs/bpf/weir-mux-test", dataDir: t.TempDir(),
	}
	l.connect(l.client, "to-client", 1)
	l.connect(l.mux, "to-mux", 2)
	l.connect(l.host, "to-host", 3)
	// The kernel delivers what XDP sends into a veth only if the other end runs XDP too.
	must(t, l.router.PassXDP("to-mux"))
	must(t, l.router.SetOffload("to-mux", netns.TxChecksum, false))
	must(t, l.client.SetOffload("eth0", netns.TxChecksum, false))

	router, err := frr.Start(l.router, frr.Config{
		AS: 65000, RouterID: netip.MustParseAddr("10.255.0.1"), PeerAS: 65010, Password: "s3cret",
		Neighbors: []netip.Addr{netip.MustParseAddr("10.2.0.2")}, GracefulRestart: true, BFD: 300 * time.Millisecond,
	})
	must(t, err)
	l.frr = router
	t.Cleanup(func() { must(t, router.Stop()) })
	l.manager = fakemanager.NewManager(t, l.mux, "127.0.0.1:0") // the mux reaches it by loopback
	must(t, l.unload())
	t.Cleanup(func() { must(t, l.unload()) })
	return l
}

// connect joins ns to the router by the network 10.N.0.0/24, and makes the router its gateway.
func (l *lab) connect(ns *netns.NS, name string, n byte) {
	l.t.Helper()
	must(l.t, netns.Veth(l.router, name, ns, "eth0"))
	must(l.t, l.router.AddAddress(name, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, n, 0, 1}), 24)))
	must(l.t, ns.AddAddress("eth0", netip.PrefixFrom(netip.AddrFrom4([4]byte{10, n, 0, 2}), 24)))
	must(l.t, ns.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), netip.AddrFrom4([4]byte{10, n, 0, 1})))
}

func (l *lab) unload() error {
	cmd := exec.Command(os.Args[0], "unload", "--pin-path", l.pinPath)
	cmd.Env = append(os.Environ(), "WEIR_TEST_MUX=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return errors.New(string(out))
	}
	return nil
}

// daemonProcess is a running weir-mux.
type daemonProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	log    *netns.Log
	exited chan error
}

// start starts weir-mux; more arguments override.
func (l *lab) start(args ...string) *daemonProcess {
	l.t.Helper()
	password := filepath.Join(l.t.TempDir(), "password")
	must(l.t, os.WriteFile(password, []byte("s3cret\n"), 0o600))
	args = append([]string{
		"--name", "mux-1", "--manager", l.manager.URL, "--interface", "eth0", "--pin-path", l.pinPath, "--as", "65010", "--data-dir", l.dataDir,
		"--peer", "address=10.2.0.1,as=65000,bfd=300ms,password-file=" + password,
	}, args...)
	d := &daemonProcess{t: l.t, log: &netns.Log{}, exited: make(chan error, 1)}
	d.cmd = exec.Command(os.Args[0], args...)
	d.cmd.Env = append(os.Environ(), "WEIR_TEST_MUX=1")
	d.cmd.Stderr = d.log
	must(l.t, l.mux.Start(d.cmd))
	go func() { d.exited <- d.cmd.Wait() }()
	l.t.Cleanup(func() {
		d.kill()
		if l.t.Failed() {
			l.t.Logf("weir-mux %d:\n%s\nlast report: %v", d.cmd.Process.Pid, d.log, l.manager.Report())
		}
	})
	return d
}

// kill ends the daemon by SIGKILL, if it still runs.
func (d *daemonProcess) kill() {
	d.cmd.Process.Signal(syscall.SIGKILL)
	err := <-d.exited
	d.exited <- err
}

// end waits for the daemon's end after sig, and returns its error.
func (d *daemonProcess) end(sig os.Signal) error {
	d.t.Helper()
	if sig != nil {
		must(d.t, d.cmd.Process.Signal(sig))
	}
	select {
	case err := <-d.exited:
		d.exited <- err
		return err
	case <-time.After(30 * time.Second):
		d.t.Fatal("weir-mux does not end")
		return nil
	}
}

// routes is what the router's kernel does with packets for the VIP.
func (l *lab) routes() string {
	l.t.Helper()
	out, err := l.router.Run("ip", "route", "show", vip.String())
	must(l.t, err)
	return strings.TrimSpace(out)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(25 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never came to: %s", what)
		}
	}
}

// table is the VIP on one backend behind the host.
func table(generation model.Generation) wire.MuxUpdate {
	e := model.MuxEndpoint{
		Key:      model.EndpointKey{VIP: vip, Protocol: model.UDP, Port: 53},
		Buckets:  []model.Slot{1, 1, 1, 1},
		Backends: []model.MuxBackend{{Slot: 1, Tunnel: host, Backend: netip.AddrPortFrom(host, 53)}},
	}
	return wire.MuxUpdate{Generation: generation, Snapshot: true, Endpoints: []model.MuxEndpoint{e}, HashKey: [40]byte{1, 2, 3}}
}

// stream sends numbered datagrams from the client to the VIP and notes which arrive at the host.
type stream struct {
	t       *testing.T
	sending sync.WaitGroup
	stop    chan struct{}
	sent    uint64
	inner   *net.IPConn // receives the insides of the tunnel

	mu      sync.Mutex
	arrived map[uint64]bool
}

const sendEvery = 2 * time.Millisecond

func (l *lab) stream() *stream {
	l.t.Helper()
	s := &stream{t: l.t, stop: make(chan struct{}), arrived: map[uint64]bool{}}
	must(l.t, l.host.Do(func() (err error) {
		s.inner, err = net.ListenIP("ip4:4", &net.IPAddr{IP: host.AsSlice()})
		return err
	}))
	var client net.Conn
	must(l.t, l.client.Do(func() (err error) {
		client, err = net.Dial("udp", netip.AddrPortFrom(vip, 53).String())
		return err
	}))
	s.sending.Go(func() {
		defer client.Close()
		tick := time.NewTicker(sendEvery)
		defer tick.Stop()
		for {
			select {
			case <-s.stop:
				return
			case <-tick.C:
				client.Write(binary.BigEndian.AppendUint64(nil, s.sent))
				s.sent++
			}
		}
	})
	go s.receive()
	return s
}

func (s *stream) receive() {
	const headers = 20 + 8 // of the inner packet
	packet := make([]byte, 2048)
	for {
		n, _, err := s.inner.ReadFrom(packet)
		if err != nil {
			return
		}
		if n == headers+8 {
			s.mu.Lock()
			s.arrived[binary.BigEndian.Uint64(packet[headers:])] = true
			s.mu.Unlock()
		}
	}
}

func (s *stream) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.arrived)
}

// more waits until n more datagrams have arrived.
func (s *stream) more(n int) {
	s.t.Helper()
	before := s.count()
	eventually(s.t, "datagrams arrive", func() bool { return s.count() >= before+n })
}

// lost ends the stream and returns how many datagrams were sent, and which of them never arrived.
func (s *stream) lost() (sent uint64, missing []uint64) {
	s.t.Helper()
	close(s.stop)
	s.sending.Wait()
	for end := time.Now().Add(5 * time.Second); uint64(s.count()) < s.sent && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	s.inner.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.sent {
		if !s.arrived[i] {
			missing = append(missing, i)
		}
	}
	return s.sent, missing
}
