package agent_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/agent"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/datapath/pin"
	"github.com/weirlb/weir/internal/model"
)

// TestRestartDuringTransfer closes and opens the data plane while bytes flow: none is lost, and
// tables, sessions and counters are those from before.
func TestRestartDuringTransfer(t *testing.T) {
	w := newWorld(t)
	w.must(w.datapath.SetGeneration(42))
	for name, way := range w.ways() {
		t.Run(name, func(t *testing.T) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				w.transfer(t, way.server, way.dip, way.vip, transferSize)
			}()
			restarts := 0
			for running := true; running; restarts++ {
				select {
				case <-done:
					running = false
				default:
					w.must(w.datapath.Close())
					w.start()
				}
			}
			if restarts < 3 {
				t.Errorf("transfer ended after %d restarts: it tells nothing", restarts)
			}
		})
	}
	w.wantNoDrops()
	if g, err := w.datapath.Generation(); err != nil || g != 42 {
		t.Errorf("generation is %d (%v), not 42", g, err)
	}
	if sessions := w.sessions(); len(sessions) != len(w.ways()) {
		t.Errorf("%d sessions live, not %d", len(sessions), len(w.ways()))
	}
	if verdicts, err := w.datapath.Verdicts(); err != nil || verdicts["deliver_native"].Packets < 1000 {
		t.Errorf("counters were lost: %v (%v)", verdicts["deliver_native"], err)
	}
}

func (w *world) sessions() []session.Session {
	w.t.Helper()
	all, err := w.datapath.Sessions()
	w.must(err)
	return all
}

// TestSessionsEnd follows a connection's state, and sweeps it once it has been idle for as long as
// its state allows.
func TestSessionsEnd(t *testing.T) {
	w := newWorld(t)
	timeouts := session.DefaultTimeouts()
	listener := listen(t, w.host, hostDIP4)
	connection := dial(t, w.client, nativeVIP4)
	accepted, err := listener.Accept()
	w.must(err)

	w.sweepAfter(session.StateEstablished, timeouts.Established-time.Minute, true)
	w.must(connection.CloseWrite())
	w.sweepAfter(session.StateEstablished, timeouts.Closing+time.Minute, true)
	w.must(accepted.Close())
	w.sweepAfter(session.StateClosing, timeouts.Closing-time.Minute, true)
	w.sweepAfter(session.StateClosing, timeouts.Closing+time.Minute, false)
	w.must(connection.Close())

	connection = dial(t, w.client, nativeVIP4)
	w.must(connection.SetLinger(0), connection.Close())
	w.sweepAfter(session.StateReset, timeouts.Reset+time.Second, false)

	connection = dial(t, w.client, nativeVIP4)
	defer connection.Close()
	w.sweepAfter(session.StateEstablished, timeouts.Established+time.Minute, false)
}

// sweepAfter waits until the only session has the state, then pretends that so much time has
// passed.
func (w *world) sweepAfter(state session.State, idle time.Duration, lives bool) {
	w.t.Helper()
	w.eventually("session is "+string(state), func() bool {
		all := w.sessions()
		return len(all) == 1 && all[0].State == state
	})
	found, err := w.datapath.Sweep(session.Now()+idle, session.DefaultTimeouts())
	w.must(err)
	if lives != (found.Live == 1) || lives == (found.Ended == 1) {
		w.t.Errorf("%s session after %s: %+v", state, idle, found)
	}
}

func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("never came true: %s; sessions: %v", what, w.sessions())
		}
	}
}

// TestUDP asks and answers through each way, with small and large datagrams, and ends the sessions.
func TestUDP(t *testing.T) {
	w := newWorld(t)
	for name, way := range w.ways() {
		t.Run(name, func(t *testing.T) {
			server := w.udp(way.server, netip.AddrPortFrom(netip.MustParseAddr(way.dip), dipPort), "")
			client := w.udp(w.client, netip.AddrPort{}, netip.AddrPortFrom(netip.MustParseAddr(way.vip), vipPort).String())
			buffer := make([]byte, 2000)
			for _, size := range []int{0, 1, 1200} {
				question := buffer[:size]
				_, err := client.Write(question)
				w.must(err)
				n, from, err := server.ReadFromUDPAddrPort(buffer)
				w.must(err)
				if n != size || from.Addr().Unmap() != clientAddress(way.vip) {
					t.Fatalf("workload got %d bytes from %s, not %d from the client", n, from, size)
				}
				_, err = server.WriteToUDPAddrPort(buffer[:n], from)
				w.must(err)
				n, err = client.Read(buffer)
				w.must(err)
				if n != size {
					t.Fatalf("client got %d bytes back, not %d", n, size)
				}
			}
		})
	}
	found, err := w.datapath.Sweep(session.Now()+session.DefaultTimeouts().UDP+time.Minute, session.DefaultTimeouts())
	if err != nil || found.Live != 0 || found.Ended != len(w.ways()) {
		t.Errorf("sweep found %+v (%v)", found, err)
	}
	w.wantNoDrops()
}

func clientAddress(vip string) netip.Addr {
	if netip.MustParseAddr(vip).Is4() {
		return netip.MustParseAddr("10.77.1.1")
	}
	return netip.MustParseAddr("fd77:1::1")
}

// udp opens a socket that listens, or one that is connected.
func (w *world) udp(ns interface{ Do(func() error) error }, local netip.AddrPort, remote string) *net.UDPConn {
	w.t.Helper()
	var socket net.Conn
	w.must(ns.Do(func() (err error) {
		if remote != "" {
			socket, err = net.Dial("udp", remote)
			return err
		}
		socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(local))
		return err
	}))
	w.t.Cleanup(func() { socket.Close() })
	w.must(socket.SetDeadline(time.Now().Add(10 * time.Second)))
	return socket.(*net.UDPConn)
}

// TestClosedPort has a workload refuse: the client must see the reset come from the VIP.
func TestClosedPort(t *testing.T) {
	w := newWorld(t)
	for name, way := range w.ways() {
		err := w.client.Do(func() error {
			_, err := net.DialTimeout("tcp", netip.AddrPortFrom(netip.MustParseAddr(way.vip), vipPort).String(), 10*time.Second)
			return err
		})
		if !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: got %v, not a refusal", name, err)
		}
	}
}

// TestWorkloadComesBack removes a workload's interface and makes it anew, with another index.
func TestWorkloadComesBack(t *testing.T) {
	w := newWorld(t)
	w.transfer(t, w.workload, workloadDIP4, interfaceVIP4, 1<<20)
	w.must(w.host.DeleteLink("w0"))
	w.must(w.host.Do(func() error { return w.datapath.SetWorkloads(nil, nil) }))
	w.plugWorkload()
	w.must(w.setWorkloads())
	w.transfer(t, w.workload, workloadDIP4, interfaceVIP4, 1<<20)

	// And once more while no agent runs.
	w.must(w.host.DeleteLink("w0"), w.datapath.Close())
	w.plugWorkload()
	w.start()
	w.must(w.setWorkloads())
	w.transfer(t, w.workload, workloadDIP6, interfaceVIP6, 1<<20)
}

// TestUplinkChanges has the MSS follow the uplink's MTU.
func TestUplinkChanges(t *testing.T) {
	w := newWorld(t)
	w.must(w.host.SetMTU("uplink", 1400), w.host.Do(w.datapath.Refresh))
	status, err := agent.Inspect(w.pins)
	w.must(err)
	if status.MTU != 1400 {
		t.Errorf("MTU is %d, not 1400", status.MTU)
	}
	listen(t, w.host, hostDIP4)
	connection := dial(t, w.client, nativeVIP4)
	defer connection.Close()
	wantMSS(t, connection, nativeVIP4, clampedMSS(nativeVIP4, 1400, outerMost))
}

// TestAdoptsItsOwn shares all tables with the same version that ran before: nothing needs to be migrated.
func TestAdoptsItsOwn(t *testing.T) {
	w := newWorld(t)
	var log bytes.Buffer
	w.must(w.datapath.Close(), w.host.Do(func() (err error) {
		w.datapath, err = agent.Open(agent.Config{
			Uplink: "uplink", PinPath: w.pins, MaxSessions: 1 << 12, Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		return err
	}))
	if s := log.String(); strings.Contains(s, "migrated") || !strings.Contains(s, "adopted=true") {
		t.Errorf("a restart logs %s", s)
	}
}

// TestOneOwner refuses a second agent, and unloading under a running one.
func TestOneOwner(t *testing.T) {
	w := newWorld(t)
	err := w.host.Do(func() error {
		_, err := agent.Open(agent.Config{Uplink: "uplink", PinPath: w.pins})
		return err
	})
	if !errors.Is(err, pin.ErrLocked) {
		t.Errorf("second agent: got %v, not %v", err, pin.ErrLocked)
	}
	if err := agent.Unload(w.pins); !errors.Is(err, pin.ErrLocked) {
		t.Errorf("unload: got %v, not %v", err, pin.ErrLocked)
	}
}

// TestUnload removes everything: a packet for a VIP then reaches no workload.
func TestUnload(t *testing.T) {
	w := newWorld(t)
	w.must(w.datapath.Close())
	if _, err := agent.Inspect(w.pins); err != nil {
		t.Errorf("inspect what runs without an agent: %v", err)
	}
	w.must(agent.Unload(w.pins))
	if _, err := agent.Inspect(w.pins); !errors.Is(err, agent.ErrNotLoaded) {
		t.Errorf("inspect: got %v, not %v", err, agent.ErrNotLoaded)
	}
	w.datapath = nil
	output, err := w.host.Run("bpftool", "net", "show", "dev", "uplink")
	w.must(err)
	if strings.Contains(output, "uplink") {
		t.Errorf("still attached:\n%s", output)
	}
}

// TestTables checks that what is set is what is there, and that what does not fit changes nothing.
func TestTables(t *testing.T) {
	w := newWorld(t)
	before, err := agent.Inspect(w.pins)
	w.must(err)
	if len(before.Rules) != 8 || len(before.Muxes) != 2 || before.Workloads[netip.MustParseAddr(hostDIP6)] != 0 {
		t.Errorf("status is %+v", before)
	}
	first := backend(model.TCP, nativeVIP4, hostDIP4, hostDIP4)
	other := backend(model.UDP, "203.0.113.99", "10.77.2.4", hostDIP4)
	w.must(w.datapath.Apply([]model.HostBackend{other}, []model.HostBackendKey{first.Key()}))
	after, err := agent.Inspect(w.pins)
	w.must(err)
	if _, there := after.Rules[first.Key()]; there || after.Rules[other.Key()].Backend != other.Backend {
		t.Errorf("rules are %v", after.Rules)
	}
	if err := w.datapath.Apply([]model.HostBackend{backend(model.TCP, nativeVIP4, hostDIP4, hostDIP6)}, nil); err == nil {
		t.Error("a backend of another family was taken")
	}
	many := make([]model.HostBackend, agent.DefaultMaxRules+1)
	for i := range many {
		many[i] = first
		many[i].Endpoint.Port = uint16(i + 1)
	}
	if err := w.datapath.Replace(many); err == nil {
		t.Error("more rules than fit were taken")
	}
	again, err := agent.Inspect(w.pins)
	w.must(err)
	if len(again.Rules) != len(after.Rules) {
		t.Errorf("a refused change left %d rules, not %d", len(again.Rules), len(after.Rules))
	}
	w.leave(500, 7, 507)
	ports, err := agent.Inspect(w.pins)
	w.must(err)
	key := model.SNATKey{VIP: netip.MustParseAddr(outVIP4), Address: netip.MustParseAddr(workloadDIP4)}
	if held := ports.SNAT[key]; len(ports.SNAT) != 1 || !slices.Equal(held, []model.Range{7, 500, 507}) {
		t.Errorf("source NAT is %v", ports.SNAT)
	}
}
