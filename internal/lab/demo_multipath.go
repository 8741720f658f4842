package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/lab/mptcp"
	"github.com/weirlb/weir/internal/lab/netlab"
)

var multipathPlan = netlab.Plan{Name: "twopaths", Clients: 1, Muxes: 2, Hosts: 3, Workloads: 2}

// multipathConnections are how many there are to a VIP of each family.
const multipathConnections = 20

func multipathCommand() *cobra.Command {
	return &cobra.Command{
		Use: "multipath", Short: "Build a lab, cut one of a client's two paths under a download, kill a mux, drain backends: no connection breaks",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			bin, err := binFolder()
			if err != nil {
				return err
			}
			if err := netlab.Requirements(bin); err != nil {
				return err
			}
			d := &multipathDemo{demo: demo{out: cmd.OutOrStdout()}, service: mptcp.Service{
				Name: "web", VIPs: []netip.Addr{netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("2001:db8:113::10")}, Weight: map[string]int{},
			}}
			return d.run(cmd.Context(), bin)
		},
	}
}

// multipathDemo is one run of the demo of Multipath TCP.
type multipathDemo struct {
	demo
	service mptcp.Service
	paths   []mptcp.Path // the first is the lab's own
	group   *mptcp.Group
	since   mptcp.View
}

func (d *multipathDemo) run(ctx context.Context, bin string) (err error) {
	d.say("\nA client that speaks Multipath TCP, by the kernel's own at both ends, and muxes that know nothing of it:\n\n%s", multipathPlan.Picture())
	if err := netlab.Down(multipathPlan.Name); err != nil { // what an earlier run left
		return err
	}
	d.lab, err = netlab.Up(ctx, netlab.Config{Plan: multipathPlan, Bin: bin, Tied: true})
	if err != nil {
		return interrupted(ctx, err)
	}
	defer func() {
		if d.group != nil {
			_ = d.group.Close() // what they have lost was told
		}
		if down := d.lab.Down(); down != nil {
			err = errors.Join(err, down)
			return
		}
		d.say("\nCleaned up: nothing of the lab is left.")
	}()
	for _, step := range []func(context.Context) error{d.serve, d.connect, d.cutPath, d.killMux, d.drain, d.joinLate} {
		if err := step(ctx); err != nil {
			return interrupted(ctx, err)
		}
	}
	return nil
}

// serve has VIPs, and a client with three addresses of each family.
func (d *multipathDemo) serve(ctx context.Context) error {
	if err := d.service.Serve(ctx, d.lab, healthyTime); err != nil {
		return err
	}
	if err := mptcp.Prepare(d.lab); err != nil {
		return err
	}
	first, err := mptcp.FirstPath(d.lab, demoClient)
	if err != nil {
		return err
	}
	d.paths = append(d.paths, first)
	for number := 2; number <= 3; number++ {
		p, err := mptcp.AddPath(d.lab, demoClient, number)
		if err != nil {
			return err
		}
		d.paths = append(d.paths, p)
	}
	return d.paths[1].Join()
}

// connect opens connections, each of which is joined from the second path.
func (d *multipathDemo) connect(ctx context.Context) (err error) {
	if d.group, err = mptcp.Open(ctx, d.lab, multipathConnections, 200*time.Millisecond, []string{demoClient}, d.service.VIPs...); err != nil {
		return err
	}
	if err := d.joined(ctx, d.paths[1]); err != nil {
		return err
	}
	d.say("\n%s has %d connections to %s and %s, at %d backends. Each has joined from a second path, %s or %s:", demoClient, d.group.Len(),
		d.service.VIPs[0], d.service.VIPs[1], len(d.group.Backends()), d.paths[1].IPv4, d.paths[1].IPv6)
	d.say("  a join has another five-tuple, and its SYN names the connection by a token alone. Hosts hand it to the one that has the connection.")
	d.since, err = d.group.View()
	return err
}

// joined holds that all connections have a subflow from a path.
func (d *multipathDemo) joined(ctx context.Context, from mptcp.Path) error {
	joined, err := d.group.WaitJoined(ctx, healthyTime, d.group.Len(), nil, from.IPv4, from.IPv6)
	if err == nil && joined < d.group.Len() {
		err = fmt.Errorf("%d of %d connections have joined from %s", joined, d.group.Len(), from.Interface)
	}
	return err
}

// cutPath cuts the path that has most of a download.
func (d *multipathDemo) cutPath(ctx context.Context) error {
	cut, err := mptcp.CutUnderDownload(ctx, d.lab, netip.AddrPortFrom(d.service.VIPs[0], mptcp.Port), d.paths[:2])
	if err != nil {
		return err
	}
	d.say("\nA download from %s by both paths, of which %s is cut. Nobody is told, its packets vanish:", cut.Backend, cut.Path)
	d.say("  the longest time without data was %.0f ms; the server's retransmission timeout was %.0f ms. All bytes that came are right.",
		cut.Gap.Seconds()*1000, cut.RTO.Seconds()*1000)
	return nil
}

func (d *multipathDemo) killMux(ctx context.Context) error {
	if err := d.lab.CutPower(demoVictim); err != nil {
		return err
	}
	d.say("\n%s loses its power:", demoVictim)
	return d.tellLost(ctx)
}

// drain takes two backends out, whose connections stay.
func (d *multipathDemo) drain(ctx context.Context) error {
	drained := []string{"host1-w1", "host2-w2"}
	for _, name := range drained {
		d.service.Weight[name] = 0
	}
	if err := d.service.Apply(ctx, d.lab, multipathPlan.Muxes-1, healthyTime); err != nil {
		return err
	}
	d.say("\n%s and %s drain:", drained[0], drained[1])
	return d.tellLost(ctx)
}

func (d *multipathDemo) tellLost(ctx context.Context) error {
	loss, err := d.group.WaitLost(ctx, healthyTime, d.since)
	if err != nil {
		return err
	}
	d.say("  of %d connections %d broke, of their subflows %d", d.group.Len(), loss.Connections, loss.Subflows)
	if loss.Connections+loss.Subflows > 0 {
		return fmt.Errorf("connections and subflows were lost: %q", loss.Why)
	}
	d.since, err = d.group.View()
	return err
}

// joinLate has all connections join from a path that is new, with fewer muxes and backends.
func (d *multipathDemo) joinLate(ctx context.Context) error {
	p := d.paths[2]
	if err := p.Join(); err != nil {
		return err
	}
	if err := d.joined(ctx, p); err != nil {
		return err
	}
	held := 0
	for name, n := range d.group.Backends() {
		if weight, drains := d.service.Weight[name]; drains && weight == 0 {
			held += n
		}
	}
	d.say("\n%s gets a third path: all %d connections join from it, those %d too that drained backends have.", demoClient, d.group.Len(), held)
	return d.tellLost(ctx)
}
