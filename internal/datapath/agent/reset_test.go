package agent_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/pkt"
)

// TestForgedResets has resets with wrong numbers come for connections that are quiet: workloads are asked, and the
// connections live. Then workloads forget them: they are asked again, and the sessions end.
func TestForgedResets(t *testing.T) {
	w := newWorld(t)
	all := w.silentConnections()
	timeouts := session.DefaultTimeouts()
	for name, way := range w.ways() {
		w.forgeReset(all[name].client, way.vip)
	}
	doubtful := func() int { return len(w.sweep(timeouts.Reset + time.Second).Doubtful) }
	w.eventually("every workload is to be asked", func() bool { return doubtful() == len(all) })
	w.eventually("every workload has its connection", func() bool { w.ask(timeouts.Reset + time.Second); return doubtful() == 0 })
	if found := w.sweep(timeouts.Established - time.Minute); found.Live != len(all) {
		t.Errorf("%d sessions live, not %d", found.Live, len(all))
	}
	for name, c := range all {
		if err := c.speak("still there"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	for name, way := range w.ways() {
		w.must(all[name].client.(*net.TCPConn).SetLinger(0), all[name].client.Close())
		w.eventually("the workload of "+name+" has heard", func() bool {
			_, err := all[name].workload.Write([]byte("x"))
			return err != nil
		})
		w.forgeReset(all[name].client, way.vip)
	}
	w.eventually("every session ends", func() bool { return w.ask(timeouts.Reset+time.Second).Live == 0 })
}

func (w *world) sweep(idle time.Duration) session.Report {
	w.t.Helper()
	found, err := w.datapath.Sweep(session.Now()+idle, session.DefaultTimeouts())
	w.must(err)
	return found
}

// ask sweeps after so much time, and sends the keepalive probes.
func (w *world) ask(idle time.Duration) session.Report {
	w.t.Helper()
	found := w.sweep(idle)
	w.must(w.host.Do(func() error { _, err := found.Doubtful.Send(); return err }))
	return found
}

// forgeReset sends a reset as from the client, with a number that nobody expects but by chance.
func (w *world) forgeReset(c net.Conn, vip string) {
	w.t.Helper()
	to := netip.AddrPortFrom(netip.MustParseAddr(vip), vipPort)
	forged := pkt.TCP(c.LocalAddr().String(), to.String(), pkt.RST, pkt.Payload(nil)).Frame()[14:]
	family, address := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		family, address = unix.AF_INET, &unix.SockaddrInet4{Addr: to.Addr().As4()}
	}
	w.must(w.client.Do(func() error {
		socket, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(socket)
		return unix.Sendto(socket, forged, 0, address)
	}))
}
