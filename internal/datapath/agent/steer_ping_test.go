package agent

import (
	"bytes"
	"math"
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// carriedBySwitch is an IP packet in IP-in-IP from a switch to a tunnel.
func carriedBySwitch(ip []byte, tunnel string) []byte {
	protocol, source, header := byte(4), switch4, 20
	if ip[0]>>4 == 6 {
		protocol = 41
	}
	if netip.MustParseAddr(tunnel).Is6() {
		source, header = switch6, 40
	}
	frame := pkt.UDP(client4, vip4).Inside(fromTo(source, tunnel)).Frame()[:ethernetHeader+header]
	setCarried(frame[ethernetHeader:], protocol, len(ip))
	return append(frame, ip...)
}

// TestPingsFromSwitches has hosts answer pings to VIPs that switches hold, and those that muxes do not answer either not.
func TestPingsFromSwitches(t *testing.T) {
	for _, w := range []struct {
		client, vip    string
		request, reply uint8
		tunnel         string
	}{
		{client4, vip4, echo4, 0, native4},
		{client4, vip4, echo4, 0, native6},
		{client6, vip6, echo6, 129, native4},
		{client6, vip6, echo6, 129, native6},
	} {
		r := newRig(t)
		client, vip := netip.MustParseAddrPort(w.client).Addr().String(), netip.MustParseAddrPort(w.vip).Addr().String()
		ping := carriedBySwitch(echo(client, vip, w.request, 77), w.tunnel)
		asks := held(heldEndpoint(model.TCP, w.vip, w.tunnel))
		r.steer(asks)
		r.check("a VIP that answers none", step{program: "from_uplink", in: ping, verdict: "drop_steer_ping"})
		asks.Ping = true
		r.steer(asks)
		got := r.run("from_uplink", ping, nil)
		if got.verdict != "reply_ping" || got.action != tcxRedirect {
			t.Fatalf("verdict is %s with %d", got.verdict, got.action)
		}
		if want := echo(vip, client, w.reply, 77); !bytes.Equal(got.frame[ethernetHeader:], want) {
			t.Errorf("answers\n%x, not\n%x", got.frame[ethernetHeader:], want)
		}
		if w.vip == vip4 {
			other := carriedBySwitch(echo(client, netip.MustParseAddrPort(otherVIP4).Addr().String(), echo4, 77), w.tunnel)
			r.check("a VIP that the switch does not hold", step{program: "from_uplink", in: other, verdict: "drop_not_a_mux"})
		}
		if err := r.objects.PingTat.Set(uint64(math.MaxInt64)); err != nil {
			t.Fatal(err)
		}
		r.check("too many", step{program: "from_uplink", in: ping, verdict: "drop_steer_ping"})
		if err := r.objects.PingTat.Set(uint64(0)); err != nil {
			t.Fatal(err)
		}
	}
}
