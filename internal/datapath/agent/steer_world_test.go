package agent_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/datapath/agent"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
)

// The switch's outer source, which is no mux's; it brings all packets to the first host. The slots of both hosts.
const (
	switchSource      = "10.77.2.253"
	hostSlot, farSlot = 1, 2
)

// steerTo has both hosts steer two VIPs, of which all buckets name the host of plugBefore.
func (w *world) steerTo(before *agent.Datapath) {
	w.t.Helper()
	var vips []steering.VIP
	rules := map[*agent.Datapath][]model.HostBackend{}
	for vip, far := range map[string]string{nativeVIP4: beforeDIP4, nativeVIP6: beforeDIP6} {
		address := netip.MustParseAddr(vip)
		dip, farDIP := hostDIP4, beforeDIP4
		if address.Is6() {
			dip, farDIP = hostDIP6, beforeDIP6
		}
		steered := steering.VIP{Address: address, Switches: []netip.Addr{netip.MustParseAddr(switchSource)}}
		for _, peer := range []string{hostDIP4, hostDIP6, beforeDIP4, beforeDIP6} {
			steered.Peers = append(steered.Peers, netip.MustParseAddr(peer))
		}
		for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
			here, there := backend(protocol, vip, hostDIP4, dip), backend(protocol, vip, far, farDIP)
			here.Slot, there.Slot = hostSlot, farSlot
			rules[w.datapath], rules[before] = append(rules[w.datapath], here), append(rules[before], there)
			e := steering.Endpoint{
				Key: here.Endpoint, Buckets: slices.Repeat([]model.Slot{farSlot}, 256), Cookies: model.CookiesOff,
				Backends: []steering.Backend{{Slot: hostSlot, Tunnel: here.Tunnel}, {Slot: farSlot, Tunnel: there.Tunnel}},
			}
			if protocol == model.TCP {
				e.Cookies = model.CookiesOn
			}
			steered.Endpoints = append(steered.Endpoints, e)
		}
		vips = append(vips, steered)
	}
	for d, all := range rules {
		d.SetHashKey(flowhash.Key{1, 2, 3})
		w.must(d.Replace(all), d.Steer(vips))
	}
}

// bySwitch has a switch bring a VIP's packets to the first host.
func (w *world) bySwitch(vip string) {
	w.t.Helper()
	w.must(w.mux.Send(netip.MustParseAddr(vip), netip.MustParseAddr(switchSource), netip.MustParseAddr(hostDIP4)))
}

// goesOn has a connection begin by a mux, and go on by a switch that brings it to another host.
func (w *world) goesOn(t *testing.T, ns *netns.NS, vip, far string) {
	t.Helper()
	const size = 8 << 20
	listener := listen(t, ns, far)
	defer listener.Close()
	w.gue(vip, far, "")
	connection := dial(t, w.client, vip)
	defer connection.Close()
	accepted, err := listener.Accept()
	w.must(err)
	defer accepted.Close()
	w.must(accepted.SetDeadline(time.Now().Add(patience)))
	w.bySwitch(vip)
	sent := make(chan error, 1)
	go func() { sent <- send(connection, size) }()
	w.must(receive(accepted, size), <-sent)

	// One that begins by the switch is the bucket's.
	began := dial(t, w.client, vip)
	defer began.Close()
	second, err := listener.Accept()
	w.must(err)
	defer second.Close()
	w.must(second.SetDeadline(time.Now().Add(patience)))
	go func() { sent <- send(began, size) }()
	w.must(receive(second, size), <-sent)
}

// TestSwitchesBringToAnotherHost has all packets of two VIPs arrive at a host that serves none of them: with timestamps
// and without, in buffers of many segments and one by one, between tunnels of one family and of two.
func TestSwitchesBringToAnotherHost(t *testing.T) {
	w := newWorld(t)
	ns, before := w.plugBefore()
	w.steerTo(before)
	for _, timestamps := range []string{"1", "0"} {
		w.must(w.client.Sysctl("net.ipv4.tcp_timestamps", timestamps))
		w.offloads(true)
		t.Run("v4 merged, timestamps "+timestamps, func(t *testing.T) { w.goesOn(t, ns, nativeVIP4, beforeDIP4) })
		w.offloads(false)
		t.Run("v4, timestamps "+timestamps, func(t *testing.T) { w.goesOn(t, ns, nativeVIP4, beforeDIP4) })
		t.Run("v6, timestamps "+timestamps, func(t *testing.T) { w.goesOn(t, ns, nativeVIP6, beforeDIP6) })
	}
	w.wantNoDrops()
	verdicts, err := w.datapath.Verdicts()
	if err != nil || verdicts["steered_cookie"].Packets == 0 || verdicts["steered_bucket"].Packets == 0 {
		t.Errorf("nothing was steered: %v (%v)", verdicts, err)
	}
	for name, c := range verdicts {
		if c.Packets > 0 {
			t.Logf("%s: %d", name, c.Packets)
		}
	}
}
