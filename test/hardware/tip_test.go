package hardware

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/testkit/fabriclab"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

// A core sends a VIP's packets to two ToRs without machines, behind TIPs; one of these dies, and comes back; the VIP goes back
// to the core alone and to the muxes. No connection breaks, and packets of strangers to a TIP go nowhere.
func TestConnectionsSurviveTIPs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w, err := fabriclab.New(ctx, testlab.Up(t, netlab.Config{Plan: fabriclab.Plan("fabrictip", "1x4x1x1", 2)}), 1)
	testlab.Must(t, err)
	behind := []string{"tor-1-3", "tor-1-4"}
	load := fabriclab.Load{Streams: streams, Interval: 100 * time.Millisecond, Patience: patience}
	testlab.Must(t, w.Hold(ctx, "begun by the muxes", load))
	testlab.Must(t, w.PlaceBehind(ctx, behind, "core-1"))
	testlab.Must(t, w.Hold(ctx, "begun by TIPs", load))
	before := muxed(t, w)
	new(lab).goOn(2 * time.Second)
	if packets := muxed(t, w) - before; packets > 50 {
		t.Errorf("the muxes forwarded %d packets while switches serve the VIP", packets)
	}
	core, err := w.Node("core-1")
	testlab.Must(t, err)
	client, err := w.Node("client1")
	testlab.Must(t, err)
	for i := range behind {
		if answered(t, w, client.IPv4, fabriclab.TIP(i)) {
			t.Errorf("a stranger's packet to TIP %s reaches a host", fabriclab.TIP(i))
		}
		if !answered(t, w, core.IPv4, fabriclab.TIP(i)) { // whoever can forge that address is believed
			t.Errorf("no packet of core-1 to TIP %s reaches a host: the test can't fail", fabriclab.TIP(i))
		}
	}
	testlab.Must(t, w.Crash(behind[0]))
	testlab.Must(t, w.Forget(behind[0]))
	testlab.Must(t, netlab.Poll(ctx, testlab.Bound, func() error {
		out, err := w.Run("core-1", w.Find("weir-switch"), "status", "--driver", "xdp")
		if err == nil && (strings.Contains(out, fabriclab.TIP(0).String()) || !strings.Contains(out, fabriclab.TIP(1).String())) {
			err = fmt.Errorf("core-1 does not send to the TIP that is left alone: %s", out)
		}
		return err
	}))
	testlab.Must(t, w.Hold(ctx, "begun by one TIP", load))
	testlab.Must(t, w.Revive(behind[0]))
	testlab.Must(t, w.WaitConnected(ctx, behind[0]))
	testlab.Must(t, w.WaitPlaced(ctx))
	testlab.Must(t, w.Place(ctx, "core-1"))
	testlab.Must(t, w.Place(ctx))
	all, err := w.Release()
	testlab.Must(t, err)
	for _, held := range all {
		r := held.Result
		t.Logf("%s: %d of %d broken, %d answers, %d datagrams lost, slowest %s", held.Name, r.Broken, r.Opened, r.Blocks, r.Lost, r.Slowest.Round(time.Millisecond))
		if r.Opened < streams || r.Broken > 0 || len(r.Backends) < 2 { // one TIP has a part of the backends
			t.Errorf("%s: %d opened at %v; broken: %+v", held.Name, r.Opened, r.Backends, r.Breaks[:min(3, len(r.Breaks))])
		}
	}
}

// muxed is how many packets the muxes have forwarded.
func muxed(t *testing.T, w *fabriclab.World) (packets uint64) {
	t.Helper()
	for _, n := range w.Of(netlab.Mux) {
		count, err := w.Forwarded(n.Name)
		testlab.Must(t, err)
		packets += count
	}
	return packets
}

// answered sends a datagram to the VIP by a TIP, from an outer source, and says whether a host answers it.
func answered(t *testing.T, w *fabriclab.World, source, tip netip.Addr) bool {
	t.Helper()
	ns, err := w.NS("client1")
	testlab.Must(t, err)
	var conn *net.UDPConn
	raw := -1
	testlab.Must(t, ns.Do(func() (err error) {
		if raw, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err != nil {
			return err
		}
		conn, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(w.VIPs[0].Address, fabriclab.Port)))
		return err
	}))
	defer unix.Close(raw)
	defer conn.Close()
	p := pkt.UDP(conn.LocalAddr().String(), conn.RemoteAddr().String(), pkt.Payload([]byte("by a TIP"))).
		Inside(pkt.IP{Source: source, Destination: tip, TTL: 64})
	buffer := make([]byte, 1<<10)
	for range 3 {
		testlab.Must(t, errors.Join(
			unix.Sendto(raw, p.Frame()[ethernetHeader:], 0, &unix.SockaddrInet4{Addr: tip.As4()}), conn.SetReadDeadline(time.Now().Add(500*time.Millisecond)),
		))
		if _, err := conn.Read(buffer); err == nil {
			return true
		}
	}
	return false
}
