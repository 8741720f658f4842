package networks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/lab/overlay"
)

// serveDatagrams is an echo of UDP.
func (w *world) serveDatagrams(ns *netns.NS, a netip.Addr) error {
	var conn net.PacketConn
	err := ns.Do(func() (err error) {
		conn, err = (&net.ListenConfig{}).ListenPacket(context.Background(), "udp", netip.AddrPortFrom(a, netlab.EchoPort).String())
		return err
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.datagrams = append(w.datagrams, conn)
	w.mu.Unlock()
	w.Cleanup(func() { _ = conn.Close() })
	go func() {
		for buffer := make([]byte, 1<<16); ; {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(buffer[:n], from)
		}
	}()
	return nil
}

// datagramsPass has both tenants' workloads exchange datagrams with servers, small ones and such that are fragmented, from
// equal addresses and ports; once they are answered, small ones go past the muxes. Then nobody listens any more, and the
// clients are told.
func (w *world) datagramsPass() {
	w.Helper()
	var conns []net.Conn
	ports := map[netip.Addr]int{overlay.VIP4: 50000, overlay.VIP6: 50001}
	for _, tenant := range []string{"acme1", "bolt1"} {
		for _, vip := range []netip.Addr{overlay.VIP4, overlay.VIP6} {
			var conn net.Conn
			must(w.T, w.space(tenant).Do(func() (err error) {
				dialer := net.Dialer{LocalAddr: &net.UDPAddr{Port: ports[vip]}}
				conn, err = dialer.Dial("udp", netip.AddrPortFrom(vip, 80).String())
				return err
			}))
			w.Cleanup(func() { _ = conn.Close() })
			conns = append(conns, conn)
			for _, length := range []int{100, 1420, 4000} {
				message := strings.Repeat(fmt.Sprintf("%s to %s, ", tenant, vip), length)[:length]
				if err := exchange(conn, message); err != nil {
					w.Errorf("%d bytes from %s to %s: %v", length, tenant, vip, err)
				}
			}
		}
	}
	before := w.forwarded()
	for _, conn := range conns {
		for n := range 20 {
			if err := exchange(conn, fmt.Sprintf("%d past the muxes", n)); err != nil {
				w.Errorf("datagram %d of %s past the muxes: %v", n, conn.LocalAddr(), err)
			}
		}
	}
	if seen := int(w.forwarded() - before); seen > len(conns) {
		w.Errorf("of %d datagrams that were to go past the muxes these sent on %d", 20*len(conns), seen)
	}
	w.mu.Lock()
	for _, server := range w.datagrams {
		_ = server.Close()
	}
	w.mu.Unlock()
	for _, conn := range conns {
		if err := exchange(conn, "to nobody"); !errors.Is(err, unix.ECONNREFUSED) {
			w.Errorf("%s to a port that nobody listens at: %v", conn.LocalAddr(), err)
		}
	}
}

// exchange has a datagram answered, which may get lost while its way is found out: how large it may be.
func exchange(conn net.Conn, message string) error {
	const tries, patience = 10, 500 * time.Millisecond
	answer := make([]byte, 1<<16)
	var err error
	for range tries {
		if _, err = conn.Write([]byte(message)); errors.Is(err, unix.ECONNREFUSED) {
			return err
		}
		if err = conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		for {
			n, failed := conn.Read(answer)
			if failed == nil && string(answer[:n]) == message {
				return nil
			}
			if err = failed; err != nil {
				break
			}
		}
		if errors.Is(err, unix.ECONNREFUSED) {
			return err
		}
	}
	return err
}
