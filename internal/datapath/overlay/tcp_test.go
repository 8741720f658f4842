package overlay

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/overlay/reset"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/pkt"
)

// site is a server's host, and beside it a namespace that is the client, its host with a vxlan device of the kernel's,
// and a mux that the test plays.
//
//	under: client 192.168.0.5 ─ vx100 ─ 10.2.0.1 ┐
//	                              mux 10.0.0.1 ──┴─ uplink ─ host ─ eth0 ─ server: a backend behind an interface
//	                                                          └ a backend on the host itself
type site struct {
	*rig
	under, host, server *netns.NS
}

func newSite(t *testing.T, name string, f family, native bool) *site {
	t.Helper()
	prefix := fmt.Sprintf("woverlay%d-%s-", os.Getpid(), name)
	s := &site{under: netns.New(t, prefix+"under"), host: netns.New(t, prefix+"host"), server: netns.New(t, prefix+"server")}
	addr, port := netip.MustParseAddr, netip.MustParseAddrPort
	inner4, outer4 := port(f.client).Addr().Is4(), addr(f.tunnel).Is4()
	one := func(a string) netip.Prefix { return netip.PrefixFrom(addr(a), addr(a).BitLen()) }
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	must(netns.Veth(s.host, "uplink", s.under, "uplink"), netns.Veth(s.host, "eth0", s.server, "eth0"))
	for _, a := range [][2]string{{"10.1.0.5/24", "10.1.0.1/24"}, {"fd01::5/64", "fd01::1/64"}} {
		must(s.host.AddAddress("uplink", netip.MustParsePrefix(a[0])), s.under.AddAddress("uplink", netip.MustParsePrefix(a[1])))
	}
	for _, a := range [][2]string{{"10.9.0.1/24", "10.9.0.6/24"}, {"fd09::1/64", "fd09::6/64"}} {
		must(s.host.AddAddress("eth0", netip.MustParsePrefix(a[0])), s.server.AddAddress("eth0", netip.MustParsePrefix(a[1])))
	}
	must(
		s.under.AddAddress("uplink", one(f.mux), one(f.host)),
		s.host.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), addr("10.1.0.1")), s.host.AddRoute(netip.MustParsePrefix("::/0"), addr("fd01::1")),
		s.server.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), addr("10.9.0.1")), s.server.AddRoute(netip.MustParsePrefix("::/0"), addr("fd09::1")))
	vxlan := fmt.Sprintf("link add vx100 type vxlan id 100 local %s remote %s dstport 4789 udp6zerocsumrx", f.host, f.tunnel)
	mtu := "1450"
	if !outer4 {
		mtu = "1430"
	}
	vip := port(f.vip).Addr()
	for _, command := range []string{
		vxlan, "link set vx100 mtu " + mtu + " up", fmt.Sprintf("addr add %s dev vx100 nodad", one(port(f.client).Addr().String())),
		fmt.Sprintf("route add %s dev vx100", one(vip.String())),
		fmt.Sprintf("neigh add %s lladdr 02:09:00:00:00:00 dev vx100 nud permanent", vip),
	} {
		if inner4 {
			command = strings.TrimSuffix(command, " nodad")
		}
		out, err := s.under.Run("ip", strings.Fields(command)...)
		if err != nil {
			t.Fatalf("ip %s: %v: %s", command, err, out)
		}
	}
	s.load(t, name, f, native)
	return s
}

// load attaches the programs. The server's end of the connection is behind the interface if it is not native.
func (s *site) load(t *testing.T, name string, f family, native bool) {
	t.Helper()
	config := testConfig
	config.PinPath = fmt.Sprintf("/sys/fs/bpf/weir-overlay-%s-%d", name, os.Getpid())
	interfaces, err := s.host.Index("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if config.Uplink, err = s.host.Index("uplink"); err != nil {
		t.Fatal(err)
	}
	if !native {
		f.dip = "10.9.0.6:8080"
		if !netip.MustParseAddrPort(f.client).Addr().Is4() {
			f.dip = "[fd09::6]:8080"
		}
	}
	err = s.host.Do(func() error {
		s.rig = newRigWith(t, f, config)
		return s.SetInterfaces([]int{interfaces})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Unload(); err != nil {
			t.Error(err)
		}
	})
	end, rule := netip.MustParseAddrPort, Rule{Tunnel: netip.MustParseAddr(f.tunnel)}
	rule.Service, rule.Backend = end(f.service), end(f.dip)
	if !native {
		rule.Ifindex = uint32(interfaces)
	}
	s.must(s.SetRules(map[uint32]Rule{1: rule}), s.SetTenant(1, 100, 100, 100))
}

// playMux sends each SYN that leaves the client a second time, from the mux and with an FBT, until stop.
func (s *site) playMux(stop chan struct{}) error {
	var sniff, udp int
	err := s.under.Do(func() (err error) {
		all := int(pkt16(unix.ETH_P_ALL))
		if sniff, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, all); err != nil {
			return err
		}
		at, err := s.under.Index("vx100")
		if err != nil {
			return err
		}
		if err := unix.Bind(sniff, &unix.SockaddrLinklayer{Protocol: pkt16(unix.ETH_P_ALL), Ifindex: at}); err != nil {
			return err
		}
		udp, err = s.muxSocket()
		return err
	})
	if err != nil {
		return err
	}
	if err := unix.SetsockoptTimeval(sniff, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50000}); err != nil {
		return err
	}
	go func() {
		defer unix.Close(sniff)
		defer unix.Close(udp)
		buffer := make([]byte, 1<<16)
		for {
			select {
			case <-stop:
				return
			default:
			}
			n, err := unix.Read(sniff, buffer)
			if err != nil {
				continue
			}
			if syn, ok := synOf(buffer[:n]); ok {
				s.relay(udp, syn)
			}
		}
	}()
	return nil
}

func pkt16(v uint16) uint16 { return binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, v)) }

// muxSocket sends UDP without a checksum, as muxes do.
func (s *site) muxSocket() (int, error) {
	from, to := netip.MustParseAddr(s.mux), netip.MustParseAddr(s.tunnel)
	of, bind := reset.Sockaddr(from, 50000)
	_, connect := reset.Sockaddr(to, pkt.VXLANPort)
	level, option := unix.SOL_SOCKET, unix.SO_NO_CHECK
	if from.Is6() {
		level, option = unix.SOL_UDP, unix.UDP_NO_CHECK6_TX
	}
	udp, err := unix.Socket(of, unix.SOCK_DGRAM, 0)
	if err != nil {
		return 0, err
	}
	return udp, errors.Join(
		unix.SetsockoptInt(udp, level, option, 1),
		unix.Bind(udp, bind), unix.Connect(udp, connect))
}

// synOf reads a frame's SYN, whose checksum its sender may have left to a device.
func synOf(frame []byte) (pkt.Packet, bool) {
	layer := layers.LayerTypeEthernet
	decoded := gopacket.NewPacket(frame, layer, gopacket.Default)
	tcp, ok := decoded.TransportLayer().(*layers.TCP)
	if !ok || !tcp.SYN || tcp.ACK {
		return pkt.Packet{}, false
	}
	network := decoded.NetworkLayer().NetworkFlow()
	from, _ := netip.AddrFromSlice(network.Src().Raw())
	to, _ := netip.AddrFromSlice(network.Dst().Raw())
	p := pkt.TCP(netip.AddrPortFrom(from, uint16(tcp.SrcPort)).String(), netip.AddrPortFrom(to, uint16(tcp.DstPort)).String(), pkt.SYN, pkt.Payload(nil))
	p.Seq, p.Options = tcp.Seq, tcp.Options
	copy(p.Source[:], frame[6:12])
	return p, true
}

func (s *site) relay(udp int, syn pkt.Packet) {
	header := 14 + 20 + 8
	if netip.MustParseAddr(s.tunnel).Is6() {
		header += 20
	}
	_, _ = unix.Write(udp, s.fromMux(syn, 7, s.key)[header:])
}

// Real connections: what leaves the server's stack has checksums that are yet to be made and is cut up later, and so has
// what comes from the client's; all of it arrives, and only the SYN passed the mux.
func TestTCPBypassesTheMux(t *testing.T) {
	for name, f := range families() {
		for _, native := range []bool{true, false} {
			where := map[bool]string{true: "native", false: "interface"}[native]
			t.Run(name+" "+where, func(t *testing.T) {
				short := strings.ReplaceAll(strings.ReplaceAll(name, " over ", ""), "v", "") + where[:1]
				s := newSite(t, short, f, native)
				stop := make(chan struct{})
				defer close(stop)
				s.must(s.playMux(stop))
				s.transfer(native)
				verdicts, err := s.Verdicts()
				s.must(err)
				for name, c := range verdicts {
					if strings.HasPrefix(name, "drop_") && name != "drop_syn_past_mux" && c.Packets > 0 {
						t.Errorf("%d packets: %s", c.Packets, name)
					}
				}
				traffic, err := s.Traffic(1)
				s.must(err)
				if traffic.Opened != 2 || traffic.Confirmed != 2 {
					t.Errorf("traffic %+v", traffic)
				}
			})
		}
	}
}

const transferred = 8 << 20

// transfer has two connections send both ways.
func (s *site) transfer(native bool) {
	s.t.Helper()
	at := s.server
	if native {
		at = s.host
	}
	var listener net.Listener
	s.must(at.Do(func() (err error) {
		listener, err = net.Listen("tcp", s.rules[1].Backend.String())
		return err
	}))
	defer listener.Close()
	sum := sha256.Sum256(river())
	for range 2 {
		served := make(chan error, 1)
		go func() {
			c, err := listener.Accept()
			if err != nil {
				served <- err
				return
			}
			defer c.Close()
			served <- errors.Join(c.SetDeadline(time.Now().Add(30*time.Second)), receive(c, sum), sendAll(c))
		}()
		var c net.Conn
		s.must(s.under.Do(func() (err error) {
			c, err = net.DialTimeout("tcp", s.vip, 20*time.Second)
			return err
		}))
		s.must(c.SetDeadline(time.Now().Add(30*time.Second)), sendAll(c), receive(c, sum), <-served, c.Close())
	}
}

func river() []byte {
	b := make([]byte, transferred)
	_, _ = rand.NewChaCha8([32]byte{'w'}).Read(b)
	return b
}

func sendAll(to io.Writer) error {
	_, err := io.Copy(to, bytes.NewReader(river()))
	return err
}

func receive(from io.Reader, sum [32]byte) error {
	b := make([]byte, transferred)
	if _, err := io.ReadFull(from, b); err != nil {
		return err
	}
	if sha256.Sum256(b) != sum {
		return errors.New("other bytes than were sent")
	}
	return nil
}
