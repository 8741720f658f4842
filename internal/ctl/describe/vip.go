package describe

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

func vipCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use:               "vip NAME",
		Aliases:           []string{"vips"},
		Short:             "Show a VIP: its endpoints, backends, their health and shares",
		Args:              session.Arguments(1, 1, "NAME"),
		ValidArgsFunction: s.Complete(1, session.VIPNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				response, err := client.GetVIP(ctx, &weirv1.GetVIPRequest{Name: args[0]})
				if err != nil {
					return fmt.Errorf("describe vip %s: %w", args[0], err)
				}
				if err := describeVIP(cmd.OutOrStdout(), response.GetVip()); err != nil {
					return err
				}
				events, err := session.ListEvents(ctx, client, &weirv1.ListEventsRequest{Kind: "VIP", Object: args[0]})
				if err != nil || len(events) == 0 {
					return nil //nolint:nilerr // the VIP is told, and an older manager has no events
				}
				fmt.Fprintf(cmd.OutOrStdout(), "\nEvents\n")
				return table.Events("  ", events, s.Now()).Write(cmd.OutOrStdout())
			})
		},
	}
}

func describeVIP(w io.Writer, vip *weirv1.VIP) error {
	fmt.Fprintf(w, "Name:        %s\n", vip.GetName())
	fmt.Fprintf(w, "Tenant:      %s\n", vip.GetTenant())
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(vip.GetLabels())) {
		labels = append(labels, name+"="+vip.GetLabels()[name])
	}
	if len(labels) > 0 {
		fmt.Fprintf(w, "Labels:      %s\n", strings.Join(labels, ", "))
	}
	addressText(w, vip)
	fmt.Fprintf(w, "Generation:  %d, run by %s muxes\n", vip.GetStatus().GetGeneration(), table.MuxShare(vip))
	fmt.Fprintf(w, "Consistency: %s\n", consistencyText(vip.GetConsistency()))
	fmt.Fprintf(w, "Ping:        %s\n", cmp.Or(vip.GetPing(), string(model.PingAnswer)))
	if vip.GetFlowLimit() > 0 {
		fmt.Fprintf(w, "Flow limit:  %d in each mux\n", vip.GetFlowLimit())
	}
	boundsText(w, vip)
	if h := vip.GetHardware(); h != nil {
		has := "all backends in each"
		if h.GetSplit() {
			has = "a part of the backends in each"
		}
		if h.GetByHost() {
			has += ", by host"
		}
		fmt.Fprintf(w, "Switches:    %s: %s; %s; UDP %s; floods: %s\n", h.GetPlacement(), strings.Join(h.GetSwitches(), ", "), has, h.GetUdp(), h.GetFlood())
	}
	for _, p := range vip.GetStatus().GetSwitches() {
		placeText(w, p)
	}
	for _, r := range vip.GetStatus().GetSteeringRefused() {
		fmt.Fprintf(w, "Not steered: by host %s: %s\n", r.GetHost(), r.GetReason())
	}
	if vip.GetPool() != "" {
		fmt.Fprintf(w, "Pool:        %s\n", vip.GetPool())
	}
	for _, c := range vip.GetStatus().GetConditions() {
		since := ""
		if c.GetLastTransitionTime() != nil {
			since = ", since " + c.GetLastTransitionTime().AsTime().Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%-12s %s, %s%s: %s\n", strings.ToUpper(c.GetType()[:1])+c.GetType()[1:]+":",
			c.GetStatus(), c.GetReason(), since, c.GetMessage())
	}
	for _, rejection := range vip.GetStatus().GetRejections() {
		fmt.Fprintf(w, "Rejected:    %s\n", rejection)
	}
	snatText(w, vip)
	if err := attachmentsText(w, vip); err != nil {
		return err
	}
	for _, e := range vip.GetEndpoints() {
		if err := endpointText(w, e); err != nil {
			return err
		}
	}
	return nil
}

// addressText is the address, and who answers for it where no router has a route.
func addressText(w io.Writer, vip *weirv1.VIP) {
	fmt.Fprintf(w, "Address:     %s\n", vip.GetAddress())
	if mux := vip.GetStatus().GetNeighborMux(); mux != "" {
		fmt.Fprintf(w, "ARP and NDP: answered by mux %s\n", mux)
	}
}

// placeText is what describe says of a switch that a VIP is in.
func placeText(w io.Writer, p *weirv1.SwitchPlace) {
	fmt.Fprintf(w, "In switch:   %s, %s since %s", p.GetSwitch(), p.GetPhase(), p.GetSince().AsTime().Format(time.RFC3339))
	if p.GetTip() != "" {
		fmt.Fprintf(w, ", behind TIP %s", p.GetTip())
	}
	if p.GetParts() > 0 {
		fmt.Fprintf(w, ", part %s", table.SwitchPart(p))
	}
	if p.GetEntries() > 0 {
		fmt.Fprintf(w, ": %d tunnels in %d entries, shares off by %.1f%% at most", p.GetMembers(), p.GetEntries(), p.GetShareErrorPercent())
	}
	fmt.Fprintln(w)
}

// endpointText is what describe says of an endpoint, and of its backends.
func endpointText(w io.Writer, e *weirv1.Endpoint) error {
	fmt.Fprintf(w, "\nEndpoint %s %s\n", e.GetProtocol(), table.PortName(e.GetPort()))
	fmt.Fprintf(w, "  Check:          %s\n", checkText(e.GetHealthCheck()))
	fmt.Fprintf(w, "  All unhealthy:  %s\n", unhealthyText(e.GetAllUnhealthy()))
	if e.GetAffinity() == string(model.AffinityClient) {
		fmt.Fprintf(w, "  Affinity:       client\n")
	}
	if e.GetSynCookies() != "" {
		fmt.Fprintf(w, "  SYN cookies:    %s\n", e.GetSynCookies())
	}
	if e.GetMultipath() != "" {
		fmt.Fprintf(w, "  Multipath:      %s\n", e.GetMultipath())
	}
	if e.GetIdleTimeout() != nil {
		fmt.Fprintf(w, "  Idle timeout:   %s\n", e.GetIdleTimeout().AsDuration())
	}
	clientsText(w, e)
	t := table.New("  ", "no backends: the muxes drop what arrives",
		"SLOT", "BACKEND", "HOST", "TUNNEL", "WEIGHT", "SHARE", "BUCKETS", "CEDED", "SESSIONS", "NO COOKIE", "HEALTH")
	for _, b := range e.GetBackends() {
		s := b.GetStatus()
		t.Add(s.GetSlot(), table.HostPort(b.GetAddress(), b.GetPort()), b.GetHost(), b.GetTunnel(), b.GetWeight(), share(s),
			s.GetBuckets(), s.GetBucketsDraining(), s.GetSessions(), s.GetSessionsWithoutCookie(), table.BackendState(b))
	}
	managersText(w, e)
	return t.Write(w)
}

// managersText tells which programs write how many of the backends.
func managersText(w io.Writer, e *weirv1.Endpoint) {
	backends := map[string]int{}
	for _, b := range e.GetBackends() {
		if b.GetFieldManager() != "" {
			backends[b.GetFieldManager()]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(backends)) {
		fmt.Fprintf(w, "  Managed:        %d backends by %s\n", backends[name], name)
	}
}

// clientsText tells who may come.
func clientsText(w io.Writer, e *weirv1.Endpoint) {
	sourcesText(w, "Allow", e.GetAllow())
	sourcesText(w, "Deny", e.GetDeny())
	sourcesText(w, "Allow lists", e.GetAllowLists())
	sourcesText(w, "Deny lists", e.GetDenyLists())
}

// boundsText tells what muxes take for a VIP each second, and what becomes of it if more comes.
func boundsText(w io.Writer, vip *weirv1.VIP) {
	if text := limitText(vip.GetLimits()); text != "" {
		fmt.Fprintf(w, "Limits:      %s a second, over all muxes\n", text)
	}
	overloadText(w, vip.GetOverload())
}

func limitText(l *weirv1.Limits) string {
	var parts []string
	for _, limit := range []struct {
		n    uint64
		what string
	}{{l.GetPackets(), "packets"}, {l.GetBytes(), "bytes"}, {l.GetConnections(), "new connections"}} {
		if limit.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", limit.n, limit.what))
		}
	}
	return strings.Join(parts, ", ")
}

// sourcesText tells a list of sources: all of a short one, how many of a long one.
func sourcesText(w io.Writer, name string, list []string) {
	const short = 8
	switch n := len(list); {
	case n > short:
		fmt.Fprintf(w, "  %-15s %s and %d more\n", name+":", strings.Join(list[:short], ", "), n-short)
	case n > 0:
		fmt.Fprintf(w, "  %-15s %s\n", name+":", strings.Join(list, ", "))
	}
}

func consistencyText(c string) string {
	if c == string(model.ConsistencyFlowTable) {
		return c + ": timestamps are left alone"
	}
	return "auto: cookies in TCP timestamps"
}

// share is the part of new connections that the backend gets.
func share(status *weirv1.BackendStatus) string {
	if status.GetBucketsTotal() == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(status.GetBuckets())/float64(status.GetBucketsTotal()))
}

func checkText(c *weirv1.HealthCheck) string {
	if c == nil {
		return "none: backends count as healthy"
	}
	text := howChecked(c)
	if c.GetPort() != 0 {
		text += fmt.Sprintf(" on port %d", c.GetPort())
	}
	return fmt.Sprintf("%s every %s, timeout %s, rise %d, fall %d",
		text, c.GetInterval().AsDuration(), c.GetTimeout().AsDuration(), c.GetRise(), c.GetFall())
}

// howChecked is "https /healthz of shop.example, any certificate".
func howChecked(c *weirv1.HealthCheck) string {
	of := func(host string) string {
		if host == "" {
			return ""
		}
		return " of " + host
	}
	switch check := c.GetCheck().(type) {
	case *weirv1.HealthCheck_Http:
		return string(model.CheckHTTP) + " " + check.Http.GetPath() + of(check.Http.GetHost())
	case *weirv1.HealthCheck_Https:
		return string(model.CheckHTTPS) + " " + check.Https.GetPath() + of(check.Https.GetHost()) + certificateText(check.Https.GetTls())
	case *weirv1.HealthCheck_Grpc:
		text := string(model.CheckGRPC)
		if service := check.Grpc.GetService(); service != "" {
			text += " " + service
		}
		text += of(check.Grpc.GetHost())
		if check.Grpc.GetTls() == nil {
			return text
		}
		return text + ", TLS" + certificateText(check.Grpc.GetTls())
	case *weirv1.HealthCheck_Udp:
		text := string(model.CheckUDP)
		if expect := check.Udp.GetExpect(); expect != "" {
			text += fmt.Sprintf(", expects %.40q", expect)
		}
		if check.Udp.GetAnswer() == "optional" {
			text += ", an answer is optional"
		}
		return text
	}
	return string(model.CheckTCP)
}

// certificateText says which certificates a check takes.
func certificateText(t *weirv1.CheckTLS) string {
	text := ", certificate of the check's ca"
	switch t.GetCa() {
	case "":
		text = ", any certificate"
	case model.SystemCA:
		text = ", certificate of the system's authorities"
	}
	if name := t.GetServerName(); name != "" {
		text += " for " + name
	}
	return text
}

func unhealthyText(policy string) string {
	if policy == "refuse" {
		return "refuse: drop"
	}
	return "keep: send to all"
}

// overloadText tells what becomes of a VIP that has too much come.
func overloadText(w io.Writer, o *weirv1.Overload) {
	if o == nil {
		return
	}
	steps := make([]string, 0, len(o.GetSteps()))
	for _, s := range o.GetSteps() {
		text := s.GetAction()
		switch model.OverloadAction(text) {
		case model.ActionLimit:
			text += " to " + limitText(s.GetLimits()) + " a second"
		case model.ActionScrub:
			text += " by " + s.GetScrubber()
		}
		steps = append(steps, fmt.Sprintf("%s after %s", text, s.GetAfter().AsDuration()))
	}
	fmt.Fprintf(w, "Overload:    on %s: %s; for %s at least, up to %s at relapses\n",
		strings.Join(o.GetTriggers(), " or "), strings.Join(steps, ", then "),
		o.GetHoldDown().AsDuration(), o.GetMaxHoldDown().AsDuration())
}

// snatText is what describe says of a VIP's source NAT.
func snatText(w io.Writer, vip *weirv1.VIP) {
	n := vip.GetStatus().GetSnat()
	if vip.GetSnat() == nil {
		return
	}
	fmt.Fprintf(w, "\nSource NAT\n  Workloads:      %d\n"+
		"  Ports:          %d can be given out, %d are held, %d in quarantine\n",
		len(vip.GetSnat().GetWorkloads()), n.GetPortsTotal(), n.GetPortsHeld(), n.GetPortsQuarantined())
	fmt.Fprintf(w, "  A workload:     begins with %d ports, has %d at most, asks %d times a second at most\n",
		vip.GetSnat().GetPreallocate(), vip.GetSnat().GetMaxPorts(), vip.GetSnat().GetRequestRate())
	fmt.Fprintf(w, "  Reserved:       %s\n", strings.Join(vip.GetSnat().GetReserved(), ", "))
	fmt.Fprintf(w, "  Left alone:     %s\n", strings.Join(vip.GetSnat().GetExcept(), ", "))
	fmt.Fprintf(w, "  Filtering:      %s\n", vip.GetSnat().GetFiltering())
	fmt.Fprintf(w, "  Without a port: %s\n", vip.GetSnat().GetExhausted())
	fmt.Fprintf(w, "  Idle timeout:   %s\n", vip.GetSnat().GetIdleTimeout().AsDuration())
}
