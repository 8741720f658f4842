package agent

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// TestSegmentsWaitForTheSocket has the host's stack asked for a socket that it has not made yet.
func TestSegmentsWaitForTheSocket(t *testing.T) {
	ns := netns.New(t, fmt.Sprintf("wagent%d-syn", os.Getpid()))
	if err := ns.AddAddress("lo", netip.MustParsePrefix(native4+"/32")); err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	r.withSYNCookies(model.SYNCookiesAuto)
	b := beginNow(newHandshake(4, "native", aligned), everything)
	client, vip, dip := b.ends()
	from, to, by := netip.MustParseAddrPort(client), netip.MustParseAddr(dip), netip.MustParseAddrPort(vip)
	key := bpf.AgentSessionKey{
		Client: bpf.ToAddress(from.Addr()), Dip: bpf.ToAddress(to), ClientPort: abi.Port(from.Port()), DipPort: abi.Port(backendPort), Protocol: uint8(model.TCP),
	}
	row := bpf.AgentSession{
		Vip: bpf.ToAddress(by.Addr()), VipPort: abi.Port(by.Port()), Events: bpf.AgentSessionEventSESSION_CLIENT_ACK, Isn: b.cookie, LastSeen: uint64(session.Now()),
	}
	if err := abi.WriteTable(r.objects.NewSessions, map[bpf.AgentSessionKey]bpf.AgentSession{key: row}); err != nil {
		t.Fatal(err)
	}
	defer listenAt(t, ns, native4).Close()
	if err := ns.Do(func() error {
		r.check("the cookie", inbound(b.ack(), "syncookie_requeue", nil))
		r.check("behind it", inbound(b.ack(numbers(clientISN+21, b.cookie+1)), "syncookie_requeue", nil))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestSegmentsWaitForTheStack has the host's stack about to answer the SYN that the agent made, on another CPU: what
// comes meanwhile waits, or asks again, and is not handed on with numbers that the stack does not know.
func TestSegmentsWaitForTheStack(t *testing.T) {
	ns := netns.New(t, fmt.Sprintf("wagent%d-syn", os.Getpid()))
	r := newRig(t)
	r.withSYNCookies(model.SYNCookiesAuto)
	b := beginNow(newHandshake(4, "native", aligned), everything)
	client, _, dip := b.ends()
	if err := ns.AddAddress("lo", netip.MustParsePrefix(dip+"/32")); err != nil {
		t.Fatal(err)
	}
	if err := ns.AddLinkRoute(netip.PrefixFrom(netip.MustParseAddrPort(client).Addr(), 32), "lo"); err != nil {
		t.Fatal(err)
	}
	defer listenAt(t, ns, dip).Close()
	syn := b.syn()
	data := b.ack(pkt.Payload([]byte("data with the cookie")))
	if err := ns.Do(func() error {
		r.check("the cookie", inbound(b.ack(), "syncookie_native", &syn))
		if err := sendRaw4(syn); err != nil { // the stack gets it, and its answer gets lost
			return err
		}
		r.check("data", inbound(data, "syncookie_requeue", nil))
		r.forget()
		r.check("data that knows of no session yet", inbound(data, "syncookie_native", &syn))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// sendRaw4 hands an IPv4 packet to the stack of this thread's namespace.
func sendRaw4(p pkt.Packet) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	return unix.Sendto(socket, p.Frame()[p.L3():], 0, &unix.SockaddrInet4{Addr: p.IP.Destination.As4()})
}
