package hardware

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/testkit/fabriclab"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

// stop is a phase in which a move can be held: what holds it, and what lets it go on. The VIP is in the switch before, and
// after.
type stop struct {
	phase string
	reach func(*plane, string) // the phase, as a manager says
	leave func(*plane)
}

const (
	weirSwitch  = "weir-switch"
	weirAgent   = "weir-agent"
	weirManager = "weir-manager"
	slowHost    = "host1"
	fresh       = "fresh"
)

var stops = []stop{
	{"preparing", func(p *plane, manager string) { // for a second, of a VIP that hosts have not heard of: a busy machine misses it
		for number := range byte(10) {
			p.freeze(slowHost, weirAgent)
			p.VIPs = append(p.VIPs, fabriclab.VIP{
				Name: fresh, Address: netip.AddrFrom4([4]byte{203, 0, 113, 100 + 10*byte(p.draw.IntN(14)) + number}), Switches: []string{core},
			})
			p.want(core)
			if p.last = fresh; p.pollPhase(manager, 2*time.Second, "preparing") == nil {
				return
			}
			p.thaw(slowHost, weirAgent)
			p.forget(fresh)
		}
		p.t.Fatal("the VIP was never seen preparing")
	}, func(p *plane) { p.thaw(slowHost, weirAgent) }},
	{"programming", func(p *plane, manager string) {
		p.place()
		p.freeze(core, weirSwitch)
		p.want(core)
		p.waitPhase(manager, "programming")
	}, func(p *plane) { p.thaw(core, weirSwitch) }},
	{"withdrawing", func(p *plane, manager string) {
		p.freeze(core, weirSwitch)
		p.want()
		p.waitPhase(manager, "withdrawing")
	}, func(p *plane) { p.thaw(core, weirSwitch) }},
	{"announcing", func(p *plane, manager string) { // again, as it is wanted before it was withdrawn
		p.freeze(core, weirSwitch)
		p.want()
		p.waitPhase(manager, "withdrawing")
		p.want(core)
		p.waitPhase(manager, "announcing")
	}, func(p *plane) { p.thaw(core, weirSwitch) }},
	{"removing", func(p *plane, manager string) {
		p.want()
		p.waitPhase(manager, "withdrawing")
		p.freeze(core, weirSwitch) // which has said by now, or soon, that it has withdrawn
		for began, awake := time.Now(), time.Millisecond; p.pollPhase(manager, 3*time.Second, "removing") != nil; awake += time.Millisecond {
			if time.Since(began) > testlab.Bound {
				p.t.Fatal("the switch was not seen removing the entry")
			}
			p.thaw(core, weirSwitch)
			time.Sleep(awake) // longer each time: how long it takes to say that it has withdrawn depends on the machine
			p.freeze(core, weirSwitch)
		}
	}, func(p *plane) { p.thaw(core, weirSwitch) }},
}

// managerKilled kills the leader while a move is in a phase, which the next one goes on from.
func (p *plane) managerKilled() {
	drawn := p.draw.Perm(len(stops))
	if !p.full {
		drawn = drawn[:2]
	}
	for _, i := range drawn {
		s := stops[i]
		leader := p.leader()
		other := p.managers(leader)[0]
		s.reach(p, other)
		process, err := p.Process(leader, weirManager)
		p.must(err)
		p.must(process.Stop(unix.SIGKILL, testlab.Bound))
		p.log("%s, which leads, is killed while the VIP is %s", leader, s.phase)
		p.leader(leader)
		is, err := p.phase(other)
		p.must(err)
		p.log("%s leads, and the VIP is %s", p.leader(leader), is)
		s.leave(p)
		p.must(p.WaitPlaced(p.t.Context()))
		_, err = p.Restart(leader, weirManager)
		p.must(err)
		p.forget(fresh)
		p.place(core)
	}
}

// forget deletes a VIP, if it is there.
func (p *plane) forget(name string) {
	p.t.Helper()
	before := len(p.VIPs)
	if p.VIPs = slices.DeleteFunc(p.VIPs, func(v fabriclab.VIP) bool { return v.Name == name }); len(p.VIPs) == before {
		return
	}
	if out, err := p.Weir("delete", "vip", name); err != nil {
		p.t.Fatalf("%v: %s", err, out)
	}
}

// leaderFrozen has a leader sleep through an election, and the rest of a move: when it wakes up it does nothing any more.
func (p *plane) leaderFrozen() {
	s := stops[1+p.draw.IntN(len(stops)-1)] // preparing is over before another one leads
	leader := p.leader()
	other := p.managers(leader)[0]
	s.reach(p, other)
	placed, withdrawn := p.events("HardwarePlaced"), p.events("HardwareWithdrawn")
	p.freeze(leader, weirManager)
	next := p.leader(leader)
	p.log("%s leads, and the VIP is %s", next, s.phase)
	s.leave(p)
	final := "leaving"
	if len(p.VIPs[0].Switches) > 0 {
		final = "hardware"
		placed++
	}
	p.waitPhase(next, final)
	p.thaw(leader, weirManager)
	p.must(p.pollPhase(leader, testlab.Bound, final))
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		for _, manager := range p.managers() {
			if is, err := p.phase(manager); err == nil && is != final {
				p.t.Errorf("%s says that the VIP is %s, which was %s", manager, is, final)
			}
		}
	}
	if is := p.leader(); is == leader {
		p.t.Errorf("%s leads again", leader)
	}
	if gotPlaced, gotWithdrawn := p.events("HardwarePlaced"), p.events("HardwareWithdrawn"); gotPlaced != placed || gotWithdrawn != withdrawn {
		p.t.Errorf("HardwarePlaced was told %d times, not %d, HardwareWithdrawn %d, not %d", gotPlaced, placed, gotWithdrawn, withdrawn)
	}
	p.place(core)
}

// agentFrozen has an agent sleep while the VIP moves to the muxes and back: its host's program and tables go on.
func (p *plane) agentFrozen() {
	host := p.Of(netlab.Host)[p.draw.IntN(len(p.Of(netlab.Host)))].Name
	p.freeze(host, weirAgent)
	end := time.Now().Add(p.minutes())
	p.hold(p.minutes() / 3)
	p.place()
	p.place(core)
	p.hold(time.Until(end))
	p.thaw(host, weirAgent)
	p.must(p.WaitConnected(p.t.Context(), host))
}

// switchFrozen has a weir-switch sleep while a backend drains: its router forgets it, and takes its word again when the entry
// is as it should be.
func (p *plane) switchFrozen() {
	p.freeze(core, weirSwitch)
	end := time.Now().Add(p.minutes())
	p.waitRoute(false)
	p.Drained = "host2-w1"
	p.must(p.Write())
	p.hold(time.Until(end))
	p.thaw(core, weirSwitch)
	p.waitRoute(true)
	p.must(p.WaitConnected(p.t.Context(), core))
	p.Drained = ""
	p.must(p.Write())
}

// waitRoute waits until the border sends the VIP to the switch, or does not.
func (p *plane) waitRoute(want bool) {
	p.t.Helper()
	via, _ := p.Address(core, string(netlab.Router))
	p.must(netlab.Poll(p.t.Context(), testlab.Bound, func() error {
		route, err := p.Run(string(netlab.Router), "ip", "-4", "route", "show", p.VIPs[0].Address.String()+"/32")
		if err == nil && strings.Contains(route, "via "+via.String()+" ") != want {
			own, _ := p.Run(core, "ip", "-4", "route", "show") // tells whose fault it is: BGP's or weir-switch's
			err = fmt.Errorf("the border's route to the VIP is %q; %s has %q", route, core, own)
		}
		return err
	}))
	p.log("the border sends the VIP to %s: %t", core, want)
}

// muxesAway has all muxes die: the VIP in the switch goes on, that of the muxes comes back with them.
func (p *plane) muxesAway() {
	for _, n := range p.Of(netlab.Mux) {
		p.must(p.Crash(n.Name))
	}
	p.log("all muxes are gone")
	get := func(v fabriclab.VIP, seconds string) error {
		_, err := p.Run("client1", "curl", "--silent", "--show-error", "--fail", "--max-time", seconds, fmt.Sprintf("http://%s:%d/", v.Address, fabriclab.Port))
		return err
	}
	for range 10 {
		if err := get(p.VIPs[0], "20"); err != nil {
			p.t.Errorf("the VIP in the switch does not go on: %v", err)
		}
	}
	if get(p.VIPs[1], "2") == nil {
		p.t.Error("the VIP of the muxes goes on without them: the test can't fail")
	}
	for _, n := range p.Of(netlab.Mux) {
		p.must(p.Revive(n.Name))
	}
	p.must(netlab.Poll(p.t.Context(), testlab.Bound, func() error { return get(p.VIPs[1], "2") }))
	p.log("the muxes serve again")
	for _, n := range p.Of(netlab.Mux) {
		p.must(p.WaitConnected(p.t.Context(), n.Name))
	}
}

// cutAbove cuts the switch's session with the border, which then sends the VIP to the muxes.
func (p *plane) cutAbove() { p.cutBGP(string(netlab.Router)) }

// cutBelow cuts its session with the switch below, its only way to the hosts: it attracts nothing that it can't bring there, from
// when it has seen that.
func (p *plane) cutBelow() {
	p.named = unix.ENETUNREACH.Error()
	p.cutBGP("agg-1-1")
}

// cutBGP cuts the switch's session with a neighbor, while the link goes on, as bad filters do; with BFD or without.
func (p *plane) cutBGP(neighbor string) {
	far, ok := p.Address(neighbor, core)
	if !ok {
		p.t.Fatalf("%s has no link to %s", core, neighbor)
	}
	drops := []string{"tcp dport 179", "tcp sport 179"}
	bfd := p.draw.IntN(2) == 0
	if !bfd {
		drops = append(drops, "udp dport 3784")
	}
	p.nft("table inet cut { chain out { type filter hook output priority 0; }; }")
	for _, d := range drops {
		p.nft(fmt.Sprintf("add rule inet cut out ip daddr %s %s drop", far, d))
	}
	p.log("%s says nothing to %s; BFD goes on: %t", core, neighbor, bfd)
	p.waitRoute(false)
	p.hold(p.minutes() / 4)
	p.nft("delete table inet cut")
	p.waitRoute(true)
}

// nft changes the switch's own filters.
func (p *plane) nft(change string) {
	p.t.Helper()
	_, err := p.Run(core, "nft", change)
	p.must(err)
}

// rest is how many tunnels the switch has room for beside those of crowd.
const rest = 4

// tunnelsFull fills the switch's table of tunnels: it refuses the VIP, which stays with the muxes, and takes it when there is
// room.
func (p *plane) tunnelsFull() {
	p.place()
	before := p.events("HardwareRefused")
	p.crowd(core)
	p.want(core)
	p.must(netlab.Poll(p.t.Context(), testlab.Bound, func() error {
		told := testlab.Events(p.t, p.Lab, "HardwareRefused")
		if len(told) <= before || !strings.Contains(told[len(told)-1], fmt.Sprintf("table tunnels has room for %d rows", rest)) {
			return fmt.Errorf("no event says that the table is full: %q", told)
		}
		return nil
	}))
	p.waitPhase(p.managers()[0], "evicted")
	p.waitRoute(false)
	p.crowd("")
	if !p.full { // asked for anew: else the switch is asked again after a minute
		p.place()
		p.want(core)
	}
	p.must(netlab.Poll(p.t.Context(), 2*testlab.Bound, func() error {
		is, err := p.phase(p.managers()[0])
		if err == nil && is != "hardware" {
			err = fmt.Errorf("the VIP is %s", is)
		}
		return err
	}))
	p.waitRoute(true)
}

// crowd has a VIP of so many backends that the switch has few tunnels left. Nobody asks for it. On no switch it leaves.
func (p *plane) crowd(on string) {
	p.t.Helper()
	var backends strings.Builder
	const tunnels = 512 // that the stand-in has
	hosts := p.Of(netlab.Host)
	for i := range tunnels - rest {
		h := hosts[i%len(hosts)]
		fmt.Fprintf(&backends, "    - {host: %s, address: 10.3.%d.%d, port: 1}\n", h.Name, h.Number, 20+i/len(hosts))
	}
	hardware, phase := fmt.Sprintf("{placement: require, switches: [%s]}", on), "hardware"
	if on == "" {
		hardware, phase = "{placement: never}", "leaving"
	}
	p.apply("crowd", fmt.Sprintf("apiVersion: weir/v1\nkind: VIP\nmetadata: {name: crowd}\nspec:\n  address: 203.0.113.99\n"+
		"  hardware: %s\n  endpoints:\n  - protocol: TCP\n    port: 1\n    backends:\n%s", hardware, backends.String()), "--wait")
	p.must(netlab.Poll(p.t.Context(), testlab.Bound, func() error {
		phases, err := p.Phases()
		if err == nil && phases["crowd"][core] != phase {
			err = fmt.Errorf("crowd is %v", phases["crowd"])
		}
		return err
	}))
}
