package describe

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/elapsed"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

func nodeCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use:               "node NAME",
		Aliases:           []string{"nodes", "switch", "switches"},
		Short:             "Show a mux, host or switch: what it runs, its sessions, tables, counters and warnings",
		Args:              session.Arguments(1, 1, "NAME"),
		ValidArgsFunction: s.Complete(1, session.NodeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				response, err := client.GetNode(ctx, &weirv1.GetNodeRequest{Name: args[0]})
				if err != nil {
					return fmt.Errorf("describe node %s: %w", args[0], err)
				}
				var vips []*weirv1.VIP
				if response.GetNode().GetRole() == string(model.RoleHost) {
					if vips, err = session.ListVIPs(ctx, client, &weirv1.ListVIPsRequest{Host: args[0]}); err != nil {
						return fmt.Errorf("describe node %s: %w", args[0], err)
					}
				}
				return describeNode(cmd.OutOrStdout(), response.GetNode(), vips, s.Now())
			})
		},
	}
}

func describeNode(w io.Writer, n *weirv1.Node, vips []*weirv1.VIP, now time.Time) error {
	fmt.Fprintf(w, "Name:        %s\n", n.GetName())
	fmt.Fprintf(w, "Role:        %s\n", n.GetRole())
	fmt.Fprintf(w, "Version:     %s\n", n.GetVersion())
	fmt.Fprintf(w, "Addresses:   %s\n", strings.Join(n.GetAddresses(), ", "))
	if all := n.GetAggregates(); len(all) > 0 {
		fmt.Fprintf(w, "Aggregates:  %s\n", strings.Join(all, ", "))
	}
	if all := n.GetNatPrefixes(); len(all) > 0 {
		fmt.Fprintf(w, "Full NAT:    %s\n", strings.Join(all, ", "))
	}
	if all := n.GetNeighborPrefixes(); len(all) > 0 {
		fmt.Fprintf(w, "ARP and NDP: %s\n", strings.Join(all, ", "))
		fmt.Fprintf(w, "Answers for: %s\n", cmp.Or(strings.Join(n.GetStatus().GetMux().GetNeighbors(), ", "), "no VIP"))
	}
	fmt.Fprintf(w, "State:       %s\n", table.NodeState(n, now))
	if n.GetDrained() != nil {
		fmt.Fprintf(w, "Drained:     %s, no VIP goes into it\n", elapsed.Ago(n.GetDrained(), now))
	}
	fmt.Fprintf(w, "Generation:  %d\n", n.GetStatus().GetGeneration())
	if r := n.GetStatus().GetRejection(); r.GetReason() != "" {
		fmt.Fprintf(w, "Refused:     generation %d: %s\n", r.GetGeneration(), r.GetReason())
	}
	if mux := n.GetStatus().GetMux(); mux != nil {
		if err := describeMux(w, mux, now); err != nil {
			return err
		}
	}
	if s := n.GetStatus().GetSwitch(); s != nil {
		if err := describeSwitch(w, s, now); err != nil {
			return err
		}
	}
	if host := n.GetStatus().GetHost(); host != nil {
		if err := describeHost(w, host); err != nil {
			return err
		}
	}
	if n.GetRole() == string(model.RoleHost) {
		return describeBackends(w, n.GetName(), vips)
	}
	return nil
}

func describeMux(w io.Writer, mux *weirv1.MuxStatus, now time.Time) error {
	fmt.Fprintf(w, "Interface:   %s, XDP %s\n", mux.GetInterface(), mux.GetXdpMode())
	describeWarnings(w, mux.GetWarnings())
	fmt.Fprintln(w, "\nBGP peers")
	t := table.New("  ", "none: no router learns of this mux",
		"PEER", "AS", "STATE", "SINCE", "BFD", "ROUTES", "LAST ERROR")
	for _, p := range mux.GetPeers() {
		t.Add(p.GetAddress(), p.GetAs(), p.GetState(), elapsed.Ago(p.GetSince(), now), p.GetBfd(), p.GetRoutes(),
			events.Printable(p.GetLastError()))
	}
	if err := t.Write(w); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nEndpoints")
	t = table.New("  ", "none", "ENDPOINT", "PACKETS", "BYTES")
	for _, e := range mux.GetEndpoints() {
		t.Add(table.EndpointName(e.GetEndpoint()), e.GetPackets(), e.GetBytes())
	}
	if err := t.Write(w); err != nil {
		return err
	}
	if sessions := mux.GetNatSessions(); len(sessions) > 0 {
		fmt.Fprintln(w, "\nSessions of full NAT")
		t = table.New("  ", "none", "TENANT OF THE NETWORK", "SESSIONS", "AT MOST")
		for _, of := range sessions {
			t.Add(of.GetTenant(), of.GetUsed(), of.GetLimit())
		}
		if err := t.Write(w); err != nil {
			return err
		}
	}
	return describeVerdicts(w, mux.GetVerdicts())
}

func describeSwitch(w io.Writer, s *weirv1.SwitchStatus, now time.Time) error {
	fmt.Fprintf(w, "Driver:      %s\n", s.GetDriver())
	fmt.Fprintf(w, "VIPs:        %d programmed, %d announced\n", s.GetProgrammed(), s.GetAnnounced())
	fmt.Fprintf(w, "Tables:      hosts %s, ecmp %s, tunnels %s, at most %d members of a group\n",
		table.SwitchRows(s.GetHosts()), table.SwitchRows(s.GetEcmp()), table.SwitchRows(s.GetTunnels()), s.GetMembers())
	fmt.Fprintf(w, "Differences: %d found by read-back\n", s.GetDifferences())
	describeWarnings(w, s.GetWarnings())
	for _, r := range s.GetRefused() {
		reason := r.GetReason()
		if r.GetTable() != "" {
			reason = fmt.Sprintf("table %s has room for %d rows, %d are needed", r.GetTable(), r.GetFree(), r.GetNeed())
		}
		fmt.Fprintf(w, "Refused:     %s: %s\n", r.GetVip(), reason)
	}
	if vips := s.GetUnrouted(); len(vips) > 0 {
		more := ""
		if s.GetUnroutedMore() {
			more = ", and more"
		}
		fmt.Fprintf(w, "Withdrawn:   %s%s: the switch has no route to their tunnels\n", strings.Join(vips, " "), more)
	}
	fmt.Fprintln(w, "\nBGP peers")
	t := table.New("  ", "none: no router learns of this switch's VIPs", "PEER", "AS", "STATE", "SINCE", "ROUTES", "LAST ERROR")
	for _, p := range s.GetPeers() {
		t.Add(p.GetAddress(), p.GetAs(), p.GetState(), elapsed.Ago(p.GetSince(), now), p.GetRoutes(), p.GetLastError())
	}
	if err := t.Write(w); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nPorts, in bit/s")
	return table.SwitchPorts(s.GetPorts()).Write(w)
}

func describeHost(w io.Writer, host *weirv1.HostStatus) error {
	fmt.Fprintf(w, "Uplink:      %s\n", host.GetUplink())
	fmt.Fprintf(w, "Sessions:    %d\n", host.GetSessions())
	describeWarnings(w, host.GetWarnings())
	return describeVerdicts(w, host.GetVerdicts())
}

func describeWarnings(w io.Writer, warnings []string) {
	for _, warning := range warnings {
		fmt.Fprintf(w, "Warning:     %s\n", events.Printable(warning))
	}
}

// describeVerdicts lists the verdicts that any packet met.
func describeVerdicts(w io.Writer, verdicts []*weirv1.NamedCounter) error {
	fmt.Fprintln(w, "\nVerdicts")
	t := table.New("  ", "no packet was seen", "VERDICT", "PACKETS", "BYTES")
	for _, v := range verdicts {
		if v.GetPackets() > 0 {
			t.Add(v.GetName(), v.GetPackets(), v.GetBytes())
		}
	}
	return t.Write(w)
}

func describeBackends(w io.Writer, host string, vips []*weirv1.VIP) error {
	fmt.Fprintln(w, "\nBackends")
	t := table.New("  ", "none", "BACKEND", "VIP", "ENDPOINT", "WEIGHT", "HEALTH")
	for _, vip := range vips {
		for _, e := range vip.GetEndpoints() {
			for _, b := range e.GetBackends() {
				if b.GetHost() == host {
					t.Add(table.HostPort(b.GetAddress(), b.GetPort()), vip.GetName(),
						e.GetProtocol()+" "+table.PortName(e.GetPort()), b.GetWeight(), table.BackendState(b))
				}
			}
		}
	}
	return t.Write(w)
}
