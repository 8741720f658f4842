package agent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/pkt"
)

// TestChainKnowsSockets has the sessions lost and the host's stack know the connection still: it is
// not handed on. A listener does not know what has not begun.
func TestChainKnowsSockets(t *testing.T) {
	ns := netns.New(t, fmt.Sprintf("wagent%d-sockets", os.Getpid()))
	for _, prefix := range []string{native4 + "/32", native6 + "/128", "198.51.100.7/32", "2001:db8::7/128"} {
		if err := ns.AddAddress("lo", netip.MustParsePrefix(prefix)); err != nil {
			t.Fatal(err)
		}
	}
	r := newRig(t)
	for _, c := range []struct{ client, vip, dip, other string }{
		{client4, vip4, native4, peer4}, {client6, vip6, native6, peer6},
	} {
		ack := pkt.TCP(c.client, c.vip, pkt.ACK)
		out := delivered(ack, c.dip)
		ask := step1(stepAsk, c.other)
		given := func(what, verdict string, want *pkt.Packet) {
			t.Helper()
			if err := ns.Do(func() error {
				r.check(what, carried(ack, outer(c.dip), ask, verdict, want))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if err := abi.WriteTable(r.objects.NewSessions, map[bpf.AgentSessionKey]bpf.AgentSession{}); err != nil {
				t.Fatal(err)
			}
		}
		given("nothing listens", "chain_on", handed(ack, c.dip, c.other, stepChained))
		connection, listener := connect(t, ns, c.client, c.dip)
		given("connected", "deliver_native", &out)
		if err := connection.Close(); err != nil {
			t.Fatal(err)
		}
		given("the client has finished", "deliver_native", &out)
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
	}
	listener := listenAt(t, ns, native4)
	defer listener.Close()
	other := pkt.TCP("198.51.100.7:40009", vip4, pkt.ACK)
	if err := ns.Do(func() error {
		r.check("a listener alone", carried(other, outer(native4), step1(stepAsk, peer4), "chain_on", handed(other, native4, peer4, stepChained)))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func listenAt(t *testing.T, ns *netns.NS, dip string) (listener net.Listener) {
	t.Helper()
	if err := ns.Do(func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(netip.MustParseAddr(dip), backendPort).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return listener
}

// connect makes a connection from a client's very address and port. The kernel has a route to an address of IPv6
// some time after it has the address.
func connect(t *testing.T, ns *netns.NS, client, dip string) (connection net.Conn, listener net.Listener) {
	t.Helper()
	listener = listenAt(t, ns, dip)
	dial := func() (err error) {
		dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(client))}
		connection, err = dialer.Dial("tcp", listener.Addr().String())
		return err
	}
	err := ns.Do(dial)
	for end := time.Now().Add(20 * time.Second); errors.Is(err, unix.ENETUNREACH) && time.Now().Before(end); err = ns.Do(dial) {
		time.Sleep(5 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	return connection, listener
}
