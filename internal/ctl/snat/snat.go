package snat

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/output"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

// Command returns the command snat.
func Command(s *session.Session) *cobra.Command {
	var port uint16
	watch := false
	cmd := &cobra.Command{
		Use:   "snat [VIP]",
		Short: "Show who leaves as a VIP, with which ports, and where to",
		Long: `Show who leaves as a VIP: the ports that each workload has, how it uses them, and the
destinations with the most flows. Without a VIP, show all that workloads leave as.

With --port, say which workload has a port of the VIP.`,
		Example: `  weir snat
  weir snat crawler
  weir snat crawler --port 5003
  weir snat reclaim crawler 10.1.0.2 --ports 5000-5015`,
		Args:              session.Arguments(0, 1, "[VIP]"),
		ValidArgsFunction: s.Complete(1, session.VIPNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.View(cmd, watch, func(ctx context.Context, client *rpc.Client, out io.Writer) error {
				if len(args) == 0 {
					return snatVIPs(ctx, s, client, out)
				}
				r, err := client.GetSNAT(ctx, &weirv1.GetSNATRequest{Name: args[0]})
				if err != nil {
					return fmt.Errorf("show the ports of VIP %s: %w", args[0], err)
				}
				return s.Output.Print(out, output.Message{Message: r}, func(w io.Writer) error {
					if port != 0 {
						return holder(w, r, port)
					}
					return snatTable(w, r)
				})
			})
		},
	}
	cmd.Flags().Uint16Var(&port, "port", 0, "say who has this `port`")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on, every two seconds")
	s.Output.AddFlag(cmd)
	cmd.AddCommand(reclaimCommand(s))
	return cmd
}

func snatVIPs(ctx context.Context, s *session.Session, client *rpc.Client, out io.Writer) error {
	vips, err := session.ListVIPs(ctx, client, &weirv1.ListVIPsRequest{})
	if err != nil {
		return err
	}
	vips = slices.DeleteFunc(vips, func(vip *weirv1.VIP) bool { return vip.GetSnat() == nil })
	return s.Output.Print(out, output.Messages(vips), func(w io.Writer) error {
		t := table.New("", "no workload leaves as a VIP", "VIP", "TENANT", "ADDRESS", "WORKLOADS", "PORTS", "HELD", "RESTING")
		for _, vip := range vips {
			n := vip.GetStatus().GetSnat()
			t.Add(vip.GetName(), vip.GetTenant(), vip.GetAddress(), n.GetWorkloads(), n.GetPortsTotal(), n.GetPortsHeld(),
				n.GetPortsQuarantined())
		}
		return t.Write(w)
	})
}

func snatTable(w io.Writer, r *weirv1.GetSNATResponse) error {
	n := r.GetStatus()
	fmt.Fprintf(w, "VIP:      %s, %s\n", r.GetName(), r.GetAddress())
	if n == nil {
		fmt.Fprintf(w, "Ports:    nobody leaves as it\n")
	} else {
		fmt.Fprintf(w, "Ports:    %d can be given out, %d are held, %d in quarantine\n",
			n.GetPortsTotal(), n.GetPortsHeld(), n.GetPortsQuarantined())
	}
	fmt.Fprintln(w)
	t := table.New("", "no workload has any",
		"WORKLOAD", "HOST", "HELD", "LENT", "IN USE", "FLOWS", "WAITING", "REQUESTS", "NO PORT", "PORTS")
	for _, p := range r.GetWorkloads() {
		used := make([]any, 0, 5)
		for _, count := range []uint64{
			uint64(p.GetUse().GetPortsInUse()), p.GetUse().GetFlows(), uint64(p.GetUse().GetHeld()),
			p.GetUse().GetRequests(), p.GetUse().GetExhausted(),
		} {
			if p.GetUse() == nil {
				used = append(used, "-")
			} else {
				used = append(used, count)
			}
		}
		name := p.GetAddress()
		if p.GetBlock() {
			name = "(port block)"
		}
		t.Add(slices.Concat(
			[]any{name, p.GetHost(), len(p.GetRanges()) * model.RangePorts, int(p.GetUse().GetLentRanges()) * model.RangePorts},
			used, []any{portsText(p)})...)
	}
	if err := t.Write(w); err != nil {
		return err
	}
	for _, p := range r.GetWorkloads() {
		if len(p.GetUse().GetDestinations()) == 0 {
			continue
		}
		fmt.Fprintf(w, "\nFlows of %s, by destination\n", p.GetAddress())
		t := table.New("  ", "", "FLOWS", "PROTOCOL", "DESTINATION")
		for _, d := range p.GetUse().GetDestinations() {
			destination := d.GetAddress()
			if d.GetPort() != 0 {
				destination = table.HostPort(d.GetAddress(), d.GetPort())
			}
			t.Add(d.GetFlows(), d.GetProtocol(), destination)
		}
		if err := t.Write(w); err != nil {
			return err
		}
	}
	return nil
}

// portsText lists the ports of a workload, those that go on together: "5000-5015, 6000-6007 (reclaimed)".
func portsText(p *weirv1.WorkloadPorts) string {
	var parts []string
	for _, part := range []struct {
		ranges []uint32
		note   string
	}{
		{without(p.GetRanges(), p.GetReclaim()), ""},
		{p.GetReclaim(), " (reclaimed)"},
		{p.GetQuarantined(), " (quarantine)"},
	} {
		for _, ports := range joined(part.ranges) {
			parts = append(parts, ports.String()+part.note)
		}
	}
	const most = 12
	if more := len(parts) - most; more > 0 {
		parts = append(parts[:most], fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, ", ")
}

func without(ranges, left []uint32) []uint32 {
	return slices.DeleteFunc(slices.Clone(ranges), func(r uint32) bool { return slices.Contains(left, r) })
}

// joined are the ports of ranges, those that go on together as one.
func joined(ranges []uint32) []model.PortRange {
	ranges = slices.Sorted(slices.Values(ranges))
	var all []model.PortRange
	for _, n := range ranges {
		r := model.Range(n)
		last := r.First() + model.RangePorts - 1
		if i := len(all) - 1; i >= 0 && all[i].Last+1 == r.First() {
			all[i].Last = last
			continue
		}
		all = append(all, model.PortRange{First: r.First(), Last: last})
	}
	return all
}

// holder says who has a port.
func holder(w io.Writer, r *weirv1.GetSNATResponse, port uint16) error {
	number := uint32(model.RangeOf(port))
	for _, p := range r.GetWorkloads() {
		how := ""
		switch {
		case slices.Contains(p.GetReclaim(), number):
			how = "has it, and is to give it back"
		case slices.Contains(p.GetRanges(), number):
			how = "has it"
		case slices.Contains(p.GetQuarantined(), number):
			how = "had it lately: it is in quarantine"
		default:
			continue
		}
		who := p.GetAddress() + " on"
		if p.GetBlock() {
			who = "the port block of"
		}
		_, err := fmt.Fprintf(w, "%s port %d: %s host %s %s\n",
			r.GetAddress(), port, who, cmp.Or(p.GetHost(), "-"), how)
		return err
	}
	_, err := fmt.Fprintf(w, "%s port %d: no workload has it\n", r.GetAddress(), port)
	return err
}

func reclaimCommand(s *session.Session) *cobra.Command {
	var ports []string
	var cancel bool
	cmd := &cobra.Command{
		Use:   "reclaim VIP WORKLOAD|HOST",
		Short: "Take ports back from a workload when their flows have ended",
		Long: `Take ports back from a workload, or from the port block by which a host serves its workloads.
The host opens no new flow with them, and gives them back when the last flow has ended: nothing breaks. Ports go in
ranges of 8.`,
		Example: `  weir snat reclaim crawler 10.1.0.2
  weir snat reclaim crawler host1
  weir snat reclaim crawler 10.1.0.2 --ports 5000-5015
  weir snat reclaim crawler 10.1.0.2 --cancel`,
		Args:              session.Arguments(2, 2, "VIP WORKLOAD|HOST"),
		ValidArgsFunction: s.Complete(1, session.VIPNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			ranges, err := parseRanges(ports)
			if err != nil {
				return session.NewUsageError(cmd, err)
			}
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				r, err := client.ReclaimPorts(ctx, &weirv1.ReclaimPortsRequest{
					Name: args[0], Address: args[1], Ranges: ranges, Cancel: cancel,
				})
				if err != nil {
					return fmt.Errorf("reclaim ports of %s: %w", args[1], err)
				}
				var texts []string
				for _, p := range joined(r.GetReclaim()) {
					texts = append(texts, p.String())
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s gives back: %s\n", args[1],
					cmp.Or(strings.Join(texts, ", "), "nothing"))
				return err
			})
		},
	}
	cmd.Flags().StringSliceVar(&ports, "ports", nil,
		"those to take back: `ports` and ranges of them, such as 5000-5015; left out: all")
	cmd.Flags().BoolVar(&cancel, "cancel", false, "take nothing back after all")
	cmd.MarkFlagsMutuallyExclusive("ports", "cancel")
	return cmd
}

// parseRanges reads ports as the ranges that hold them.
func parseRanges(ports []string) ([]uint32, error) {
	var ranges []uint32
	for _, text := range ports {
		p, err := model.ParsePortRange(text)
		if err != nil {
			return nil, fmt.Errorf("read --ports: %w", err)
		}
		for r := model.RangeOf(p.First); r <= model.RangeOf(p.Last); r++ {
			ranges = append(ranges, uint32(r))
		}
	}
	slices.Sort(ranges)
	return slices.Compact(ranges), nil
}
