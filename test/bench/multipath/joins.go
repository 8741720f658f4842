package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/pin"
	"github.com/weirlb/weir/internal/lab/mptcp"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/testkit/benchlab"
	"github.com/weirlb/weir/internal/testkit/mptcplab"
)

const (
	labName = "benchmptcp"
	vips    = 80 // the VIPs' number
	// joinPaths are the paths from which connections join: 2, 3 and 4.
	joinPaths = 3
)

// withWorld has a function measure in a world of its own.
func withWorld(ctx context.Context, how options, hosts, paths, joined int, measure func(*mptcplab.World) error) (err error) {
	lab, err := benchlab.Up(ctx, how.bin, netlab.Config{Plan: mptcplab.Plan(labName, hosts)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Down()) }()
	w, err := mptcplab.New(ctx, lab, vips, paths, joined)
	if err != nil {
		return err
	}
	return measure(w)
}

// measureJoins opens connections of both families, by clients with and without timestamps, and counts which joins reach their
// server, among backends behind interfaces and native ones.
func measureJoins(ctx context.Context, how options, to *report) error {
	return withWorld(ctx, how, 4, 1+joinPaths, 1+joinPaths, func(w *mptcplab.World) error {
		refused, err := w.Refused()
		if err != nil {
			return err
		}
		clients := []string{mptcplab.Modern, mptcplab.NoTimestamp}
		g, err := mptcp.Open(ctx, w.Lab, how.connections/len(clients)/len(w.Service.VIPs), 4*time.Second, clients, w.Service.VIPs...)
		if err != nil {
			return err
		}
		defer g.Close()
		right := 0
		for path := 2; path < 2+joinPaths; path++ {
			joined, err := g.WaitJoined(ctx, 20*time.Second, g.Len(), nil, w.Addresses(path)...)
			if err != nil {
				return err
			}
			right += joined
		}
		now, err := w.Refused()
		if err != nil {
			return err
		}
		to.add("joins", float64(joinPaths*g.Len()))
		to.add("joins_right", float64(right)/float64(joinPaths*g.Len()))
		to.add("joins_at_wrong_servers", float64(now-refused))
		to.add("backends_with_connections", float64(len(g.Backends())))
		if err := to.addVerdicts(w); err != nil {
			return err
		}
		bytes, err := bytesPerName(w.Lab)
		if err != nil {
			return err
		}
		to.add("bytes_per_mptcp_connection_and_home", bytes)
		return nil
	})
}

func (r *report) addVerdicts(w *mptcplab.World) error {
	verdicts, err := w.Verdicts()
	if err != nil {
		return err
	}
	r.Verdicts = maps.Clone(verdicts)
	maps.DeleteFunc(r.Verdicts, func(name string, packets uint64) bool { return packets == 0 || !strings.Contains(name, "join") })
	return nil
}

// bytesPerName is what a home keeps of a connection: a row of the table of names, with the kernel's share of it.
func bytesPerName(lab *netlab.Lab) (float64, error) {
	table, err := ebpf.LoadPinnedMap(pin.Live(lab.PinPath(lab.Of(netlab.Host)[0].Name), bpf.AgentMapMptcpNames), nil)
	if err != nil {
		return 0, fmt.Errorf("open the table of names: %w", err)
	}
	defer table.Close()
	info, err := table.Info()
	if err != nil {
		return 0, err
	}
	bytes, ok := info.Memlock()
	if !ok {
		return 0, errors.New("the kernel does not say how large the table of names is")
	}
	return float64(bytes) / float64(info.MaxEntries), nil
}

// earlyGroup are the connections that are open at a time.
const earlyGroup = 250

// measureEarly has connections join as soon as the client can, half of them to servers that signal an address of their own at
// once: the client then joins before it has data. A join that comes before its token has reached the home is dropped.
func measureEarly(ctx context.Context, how options, to *report) error {
	return withWorld(ctx, how, 4, 2, 2, func(w *mptcplab.World) error {
		before, err := w.Verdicts()
		if err != nil {
			return err
		}
		var trips []time.Duration
		joins, right := 0, 0
		for _, signalled := range []bool{false, true} {
			if signalled {
				if err := signalAddresses(w.Lab); err != nil {
					return err
				}
			}
			for opened := 0; opened < how.early/2; opened += earlyGroup {
				joined, rtts, err := openAndJoin(ctx, w)
				if err != nil {
					return err
				}
				joins, right, trips = joins+earlyGroup, right+joined, append(trips, rtts...)
			}
		}
		after, err := w.Verdicts()
		if err != nil {
			return err
		}
		slices.Sort(trips)
		to.add("early_joins", float64(joins))
		to.add("early_joins_right", float64(right)/float64(joins))
		to.add("early_joins_rtt_p10_ms", trips[len(trips)/10].Seconds()*1000)
		to.add("early_joins_rtt_p50_ms", trips[len(trips)/2].Seconds()*1000)
		to.add("joins_before_their_row", float64(after["drop_join_unknown"]-before["drop_join_unknown"]))
		return nil
	})
}

// signalAddresses has servers tell each client that connects that they have one more address, where nobody is.
func signalAddresses(lab *netlab.Lab) error {
	for _, node := range mptcp.Servers(lab) {
		if _, err := lab.Run(node, "ip", "mptcp", "endpoint", "add", "192.0.2.1", "signal"); err != nil {
			return err
		}
	}
	return nil
}

// openAndJoin opens connections, and returns how many have joined, and the least round trips of those that have.
func openAndJoin(ctx context.Context, w *mptcplab.World) (joined int, rtts []time.Duration, err error) {
	g, err := mptcp.Open(ctx, w.Lab, earlyGroup/len(w.Service.VIPs), time.Minute, []string{mptcplab.Modern}, w.Service.VIPs...)
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	addresses := w.Addresses(2)
	if joined, err = g.WaitJoined(ctx, 20*time.Second, g.Len(), nil, addresses...); err != nil {
		return 0, nil, err
	}
	view, err := g.View()
	if err != nil {
		return 0, nil, err
	}
	for _, subflows := range view {
		for _, s := range subflows {
			if slices.Contains(addresses, s.Local.Addr()) {
				rtts = append(rtts, s.MinRTT)
			}
		}
	}
	return joined, rtts, nil
}

// measureCut has downloads by two paths, of which the one that brings more is cut: by VIPs and, beside them, from a backend
// itself, where the kernel alone decides how long it waits.
func measureCut(ctx context.Context, how options, to *report) error {
	return withWorld(ctx, how, 3, 2, 2, func(w *mptcplab.World) error {
		backend := w.Of(netlab.Workload)[1]
		vip := func(i int) netip.AddrPort {
			return netip.AddrPortFrom(w.Service.VIPs[i%len(w.Service.VIPs)], mptcp.Port)
		}
		dip := func(i int) netip.AddrPort {
			return netip.AddrPortFrom([]netip.Addr{backend.IPv4, backend.IPv6}[i%2], netlab.EchoPort)
		}
		var ratios, direct []float64
		for i := range how.cuts {
			for from, all := range map[netip.AddrPort]*[]float64{vip(i): &ratios, dip(i): &direct} {
				cut, err := w.Cut(ctx, from)
				if err != nil {
					return err
				}
				to.Cuts = append(to.Cuts, cut)
				*all = append(*all, cut.Gap.Seconds()/cut.RTO.Seconds())
			}
		}
		to.add("cut_path_gap_to_rto", slices.Max(ratios))
		to.add("cut_path_gap_to_rto_p50", median(ratios))
		to.add("direct_cut_path_gap_to_rto", slices.Max(direct))
		to.add("direct_cut_path_gap_to_rto_p50", median(direct))
		return nil
	})
}

// measureChurn puts connections through all that can happen.
func measureChurn(ctx context.Context, how options, to *report) error {
	return withWorld(ctx, how, 4, 3, 2, func(w *mptcplab.World) error {
		var connections, subflows, joins, refused int
		for _, s := range mptcplab.Churn() {
			clients := 2
			if s.Modern {
				clients = 1
			}
			o, err := w.Run(ctx, s, how.churned/clients/len(w.Service.VIPs))
			if err != nil {
				return err
			}
			to.Churn = append(to.Churn, o)
			fmt.Printf("  %-32s %4d connections, %d lost; %4d subflows, %d lost; %4d joined behind it %q\n",
				o.Name, o.Connections, o.Lost, o.Subflows, o.SubflowLost, o.Joined, o.Why)
			connections, subflows, joins, refused = connections+o.Lost, subflows+o.SubflowLost, joins+o.Connections-o.Lost-o.Joined, refused+o.Refused
		}
		to.add("connections_lost", float64(connections))
		to.add("subflows_lost", float64(subflows))
		to.add("joins_lost_after_churn", float64(joins))
		to.add("joins_refused_in_churn", float64(refused))
		return nil
	})
}
