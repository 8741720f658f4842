// Package synflood runs SYN cookies in a lab of their own:
//
//	client1, client2 ── router ──┬── mux1, mux2 ── host1: a container, a native workload
//	                             └──────────────── host2: likewise
package synflood

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/flood"
	"github.com/weirlb/weir/internal/lab/load"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

const (
	// floodTime is how long spoofed SYNs come, at the full speed of one core.
	floodTime = 10 * time.Second
	// least is what the muxes are told to be no flood: so few SYNs a second that a lab's crowd is more.
	least = 40
)

var vips = []netip.Addr{netip.MustParseAddr("203.0.113.30"), netip.MustParseAddr("2001:db8:113::30")}

// apply has the VIPs' SYNs answered in the mode.
func apply(t *testing.T, lab *netlab.Lab, mode string) {
	t.Helper()
	var all []string
	for i, vip := range vips {
		all = append(all, fmt.Sprintf("---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: syn-%d}\nspec:\n  address: '%s'\n  endpoints:\n"+
			"    - port: 80\n      synCookies: %s\n      backends:\n%s", i, vip, mode, testlab.Backends(lab, vip)))
	}
	testlab.Apply(t, lab, all...)
}

// answered is how many SYNs the muxes have answered with cookies.
func answered(t *testing.T, lab *netlab.Lab) uint64 {
	t.Helper()
	return testlab.Counted(t, lab, "reply_syn")
}

// served makes requests, each on a connection of its own, none of which may fail.
func served(t *testing.T, lab *netlab.Lab, vip netip.Addr, requests int) {
	t.Helper()
	r, err := netload.RunLoad(t.Context(), lab, "client1", load.Config{
		URL: testlab.URL(vip), Requests: requests, Concurrency: 8, Timeout: 20 * time.Second,
	})
	testlab.Must(t, err)
	testlab.Served(t, vip, r)
	if r.Requests != requests || len(r.Backends) != len(lab.Of(netlab.Workload)) {
		t.Errorf("%s: %d of %d requests, by backends %v", vip, r.Requests, requests, r.Backends)
	}
}

// Real connections are made by cookies, to workloads of both kinds, and of both families. A crowd of real clients
// loses nothing, whatever it is taken for. A flood of spoofed SYNs, with ACKs behind them or without, turns cookies on, own clients lose nothing, and
// cookies go when the flood has gone.
func TestSYNCookiesInTheLab(t *testing.T) {
	lab := testlab.Up(t, netlab.Config{
		Plan:     netlab.Plan{Name: "syn", Clients: 2, Muxes: 2, Hosts: 2, Workloads: 2},
		MuxFlags: []string{"--syn-flood-min-rate", fmt.Sprint(least)},
	})
	apply(t, lab, "always")
	testlab.WaitServed(t, lab, vips...)
	t.Run("always", func(t *testing.T) {
		for _, vip := range vips {
			before := answered(t, lab)
			served(t, lab, vip, 400)
			if n := answered(t, lab) - before; n < 400 {
				t.Errorf("%s: the muxes answered %d SYNs only", vip, n)
			}
		}
		crowd(t, lab)
	})
	t.Run("auto", func(t *testing.T) {
		apply(t, lab, "auto")
		before := answered(t, lab)
		for _, vip := range vips {
			run, err := netload.RunLoad(t.Context(), lab, "client1", load.Config{
				URL: testlab.URL(vip), Rate: usual, Duration: 2 * time.Second, Timeout: 20 * time.Second,
			})
			testlab.Must(t, err)
			testlab.Served(t, vip, run)
		}
		if n := answered(t, lab) - before; n != 0 {
			t.Errorf("the muxes answered %d SYNs without a flood", n)
		}
		t.Run("crowd", func(t *testing.T) { mistaken(t, lab) })
		t.Run("full backlogs", func(t *testing.T) { fullBacklog(t, lab) })
		for _, kind := range []flood.Kind{flood.Handshake, flood.SYN} {
			t.Run("flood of "+string(kind), func(t *testing.T) { underFlood(t, lab, kind) })
		}
	})
}

const (
	usual     = 2 // connections a second
	many      = 200 * usual
	crowdTime = 4 * time.Second
)

// crowd is of real clients, 200 times the usual rate at once, of which none may lose its connection.
func crowd(t *testing.T, lab *netlab.Lab) {
	t.Helper()
	runs := map[netip.Addr]*netload.Load{}
	for _, vip := range vips {
		run, err := netload.StartLoad(t.Context(), lab, "client1", load.Config{
			URL: testlab.URL(vip), Rate: many, Duration: crowdTime, Timeout: 30 * time.Second,
		})
		testlab.Must(t, err)
		runs[vip] = run
	}
	for vip, run := range runs {
		r, err := run.Wait()
		testlab.Must(t, err)
		testlab.Served(t, vip, r)
		if rate := float64(r.Requests) / crowdTime.Seconds(); rate < 4*least {
			t.Errorf("%s: %.0f connections a second are no crowd", vip, rate)
		}
	}
}

// mistaken lets a crowd come where muxes look for floods. Should one take it for a flood, it says so: then it answers
// more SYNs than those by which it finds out.
func mistaken(t *testing.T, lab *netlab.Lab) {
	before := answered(t, lab)
	crowd(t, lab)
	n := answered(t, lab) - before
	t.Logf("%d SYNs of the crowd were answered with cookies", n)
	if all := float64(len(vips)*many) * crowdTime.Seconds(); float64(n) < all/4 {
		return
	}
	testlab.Must(t, netlab.Poll(t.Context(), testlab.Bound, func() error {
		if len(testlab.Events(t, lab, "SYNCookiesOn")) == 0 {
			return fmt.Errorf("cookies were on, and nobody was told")
		}
		return nil
	}))
}

// underFlood floods the VIPs while clients ask them.
func underFlood(t *testing.T, lab *netlab.Lab, kind flood.Kind) {
	runs := map[netip.Addr]*netload.Load{}
	config := flood.Config{Duration: floodTime, Kind: kind}
	for _, vip := range vips {
		run, err := netload.StartLoad(t.Context(), lab, "client1", load.Config{
			URL: testlab.URL(vip), Rate: 20, Duration: time.Hour, Timeout: 30 * time.Second,
		})
		testlab.Must(t, err)
		runs[vip] = run
		config.Targets = append(config.Targets, netip.AddrPortFrom(vip, 80))
	}
	before := testlab.Verdicts(t, lab)
	r, err := netload.Flood(lab, "client2", config)
	testlab.Must(t, err)
	t.Logf("%d packets of spoofed sources in %v", r.Packets, r.Took)
	after := testlab.Verdicts(t, lab)
	syns, forwarded := after["reply_syn"]-before["reply_syn"], after["forward_syn"]-before["forward_syn"]
	if t.Logf("%d SYNs were answered with cookies, %d were forwarded", syns, forwarded); syns < forwarded {
		t.Error("most SYNs of the flood reached the hosts")
	}
	ended := func() error {
		on, off := testlab.Events(t, lab, "SYNCookiesOn"), testlab.Events(t, lab, "SYNCookiesOff")
		if len(on) == 0 || len(off) != len(on) {
			return fmt.Errorf("the muxes told %q and %q", on, off)
		}
		t.Logf("%s", strings.Join(append(on, off...), "\n"))
		return nil
	}
	testlab.Must(t, netlab.Poll(context.WithoutCancel(t.Context()), testlab.Bound, ended))
	for vip, run := range runs {
		r, err := run.Stop()
		testlab.Must(t, err)
		testlab.Served(t, vip, r)
	}
}
