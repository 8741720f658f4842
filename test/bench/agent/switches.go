package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"

	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/testkit/benchlab"
	"github.com/weirlb/weir/internal/testkit/turns"
)

// A switch that holds all VIPs, and the backend on another host that all buckets name.
const (
	switch4, switch6 = "10.78.2.253", "fd78:2::fd"
	far4, far6       = "10.78.2.60", "fd78:2::60"
	farSlot          = 60

	buckets = 4096

	switchesCPU = 1
)

// Where a packet goes that a switch brought: it stays, as its cookie names this host's backend or a session of that knows it;
// or goes on to another host, as its cookie or its bucket says.
const (
	here = "here"
	away = "away"
)

// comparison is what packets of a class cost that a switch brings, to such from a mux that are delivered.
type comparison struct {
	Class    string   `json:"class"`
	Family   string   `json:"family"`
	Workload workload `json:"workload"`
	To       string   `json:"to"`
	Mux      float64  `json:"mux_ns"`
	Switch   float64  `json:"switch_ns"`
	Ratio    float64  `json:"ratio"` // median of those of turns

	byMux, bySwitch segment
	mux, ns, ratios []float64
}

// compareSwitches has packets from muxes and from switches take turns.
func compareSwitches(out string, rounds int) error {
	var all []*comparison
	err := onBareHost(func(b *bare) (err error) {
		if err = b.steer(); err != nil {
			return err
		}
		if all, err = b.comparisons(); err != nil {
			return err
		}
		runtime.LockOSThread() // for good: the thread ends with its priority
		if err := turns.TakeCPU(switchesCPU % runtime.NumCPU()); err != nil {
			return err
		}
		for range rounds {
			for _, c := range all {
				if err := c.turn(b); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "class\tfamily\tworkload\tto\tmux (ns)\tswitch (ns)\tratio\t")
	for _, c := range all {
		c.Mux, c.Switch, c.Ratio = median(c.mux), median(c.ns), median(c.ratios)
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%.0f\t%.0f\t%.2f\t\n", c.Class, c.Family, c.Workload, c.To, c.Mux, c.Switch, c.Ratio)
	}
	return errors.Join(table.Flush(), benchlab.Write(out, all))
}

func median(of []float64) float64 {
	return slices.Sorted(slices.Values(of))[len(of)/2]
}

func (c *comparison) turn(b *bare) error {
	mux, err := b.measure(c.byMux)
	if err != nil {
		return err
	}
	ns, err := b.measure(c.bySwitch)
	if err != nil {
		return err
	}
	c.mux, c.ns, c.ratios = append(c.mux, mux), append(c.ns, ns), append(c.ratios, ns/mux)
	return nil
}

// steer has the switch hold all VIPs.
func (b *bare) steer() error {
	var vips []steering.VIP
	for _, of := range []string{"v4", "v6"} {
		far := netip.MustParseAddr(farOf(of))
		for _, kind := range []workload{native, container} {
			e := endsOf(of, kind)
			at, tunnel := netip.MustParseAddrPort(e.vip), netip.MustParseAddrPort(e.dip).Addr()
			vip := steering.VIP{Address: at.Addr(), Switches: []netip.Addr{netip.MustParseAddr(switchOf(of))}, Peers: []netip.Addr{far}}
			for protocol, cookies := range map[model.Protocol]model.Cookies{model.TCP: model.CookiesOn, model.UDP: model.CookiesOff} {
				vip.Endpoints = append(vip.Endpoints, steering.Endpoint{
					Key:     model.EndpointKey{VIP: at.Addr(), Protocol: protocol, Port: at.Port()},
					Buckets: slices.Repeat([]model.Slot{farSlot}, buckets), Cookies: cookies,
					Backends: []steering.Backend{{Slot: slot, Tunnel: tunnel}, {Slot: farSlot, Tunnel: far}},
				})
			}
			vips = append(vips, vip)
		}
	}
	b.datapath.SetHashKey(flowhash.Key{1, 2, 3})
	return b.datapath.Steer(vips)
}

func switchOf(family string) string { return map[string]string{"v4": switch4, "v6": switch6}[family] }
func farOf(family string) string    { return map[string]string{"v4": far4, "v6": far6}[family] }

// comparisons brings connections of all classes about, and checks what becomes of each packet.
func (b *bare) comparisons() (all []*comparison, err error) {
	for _, of := range []string{"v4", "v6"} {
		for _, kind := range []workload{native, container} {
			more, err := b.comparisonsOf(of, kind)
			if err != nil {
				return nil, fmt.Errorf("compare %s to %s: %w", of, kind, err)
			}
			all = append(all, more...)
		}
	}
	for _, c := range all {
		for _, s := range []segment{c.byMux, c.bySwitch} {
			if _, err := b.send(s); err != nil {
				return nil, fmt.Errorf("verify %s of %s to %s, %s: %w", c.Class, c.Family, c.Workload, c.To, err)
			}
		}
	}
	return all, nil
}

// comparisonsOf has a connection with timestamps, one without and a flow, each beside one whose backend is not here.
func (b *bare) comparisonsOf(of string, kind workload) (all []*comparison, err error) {
	e := endsOf(of, kind)
	client := netip.MustParseAddrPort(e.client)
	at := func(more uint16) ends {
		other := e
		other.client = netip.AddrPortFrom(client.Addr(), client.Port()+more).String()
		return other
	}
	stamped, plain, stranger := e, at(1), at(2)
	data, _, err := b.shakeHands(stamped, true)
	if err != nil {
		return nil, err
	}
	withoutStamps, _, err := b.shakeHands(plain, false)
	if err != nil {
		return nil, err
	}
	datagram := pkt.UDP(e.client, e.vip)
	if _, err := b.send(b.in(e, datagram)); err != nil {
		return nil, err
	}
	for _, c := range []struct {
		class            string
		known, elsewhere pkt.Packet
		steered          string
	}{
		{"tcp", data, pkt.TCP(stranger.client, e.vip, pkt.ACK, pkt.NOP(2), pkt.Timestamps(1, 1<<20|farSlot)), "steered_cookie"},
		{"tcp-plain", withoutStamps, pkt.TCP(stranger.client, e.vip, pkt.ACK), "steered_bucket"},
		{"udp", datagram, pkt.UDP(stranger.client, e.vip), "steered_bucket"},
	} {
		bySwitch := e
		bySwitch.mux = switchOf(of)
		stays, goes := b.in(bySwitch, c.known), b.in(bySwitch, c.elsewhere)
		goes.verdict, goes.action = c.steered, tcxRedirect
		for to, s := range map[string]segment{here: stays, away: goes} {
			all = append(all, &comparison{Class: c.class, Family: of, Workload: kind, To: to, byMux: b.in(e, c.known), bySwitch: s})
		}
	}
	return all, nil
}
