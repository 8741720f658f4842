package diagnose

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/output"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/manifest"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/warning"
)

// Roles of nodes, as the API names them.
const (
	roleMux  = string(model.RoleMux)
	roleHost = string(model.RoleHost)
)

// StatusCommand returns the command status.
func StatusCommand(s *session.Session) *cobra.Command {
	watch := false
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the whole installation does, and what is wrong with it",
		Long: `Show how the whole installation does: the manager, the muxes with their BGP sessions,
the hosts, the first 100 VIPs. What needs attention, of all VIPs, stands at the end, with
what to do.`,
		Args:              session.Arguments(0, 0, ""),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.View(cmd, watch, func(ctx context.Context, client *rpc.Client, out io.Writer) error {
				o, err := observe(ctx, s, client)
				if err != nil {
					return fmt.Errorf("get the status: %w", err)
				}
				value := statusDocument{
					Manager: output.Message{Message: o.status}, Warnings: o.warnings, Note: o.note,
					VIPs: output.Documents(o.vips, output.VIPStatus),
				}
				return s.Output.Print(out, value, o.write)
			})
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on, every two seconds")
	s.Output.AddFlag(cmd)
	return cmd
}

// shownVIPs is how many VIPs are shown, by name. All of them are counted, and warned of.
const shownVIPs = 100

// statusDocument is the status as JSON and YAML.
type statusDocument struct {
	Manager  output.Message      `json:"manager"`
	VIPs     []manifest.Document `json:"vips"` // at most shownVIPs
	Warnings []string            `json:"warnings"`
	Note     string              `json:"note,omitempty"`
}

// observation is what the manager knows, at one time.
type observation struct {
	now      time.Time
	managers string // URLs
	status   *weirv1.GetStatusResponse
	vips     []*weirv1.VIP // at most shownVIPs
	warnings []string
	warned   int    // how many warnings there are, with those that are left out
	note     string // what is no warning
}

func observe(ctx context.Context, s *session.Session, client *rpc.Client) (*observation, error) {
	status, err := client.Status(ctx)
	if err != nil {
		return nil, err
	}
	vips, err := client.ListVIPs(ctx, &weirv1.ListVIPsRequest{PageSize: shownVIPs})
	if err != nil {
		return nil, err
	}
	access, err := s.Access()
	if err != nil {
		return nil, err
	}
	o := &observation{
		now: s.Now(), managers: access.Managers, status: status, vips: vips.GetVips(), warnings: []string{},
	}
	list, total := warning.Of(status, o.now)
	for _, w := range list {
		o.warnings = append(o.warnings, w.GetText())
	}
	o.warned, o.note = total, warning.Silence(status, o.now)
	return o, nil
}

func (o *observation) write(w io.Writer) error {
	s := o.status
	manager := o.managers
	if s.GetManager() != "" {
		manager = s.GetManager() + ", of " + o.managers
	}
	fmt.Fprintf(w, "Manager     %s, version %s, store %s\n", manager, s.GetVersion(), s.GetStore())
	fmt.Fprintf(w, "Generation  %d\n", s.GetGeneration())
	fmt.Fprintf(w, "VIPs        %d, with %d endpoints and %d backends, %d of them unhealthy\n",
		s.GetVips(), s.GetEndpoints(), s.GetBackends(), s.GetBackendsUnhealthy())
	for _, t := range []*table.Table{o.muxes(), o.hosts(), table.VIPs("VIP", o.vips)} {
		fmt.Fprintln(w)
		if err := t.Write(w); err != nil {
			return err
		}
	}
	if more := int(s.GetVips()) - len(o.vips); more > 0 {
		fmt.Fprintf(w, "and %d more: weir get vips\n", more)
	}
	fmt.Fprintln(w)
	if len(o.warnings) == 0 {
		fmt.Fprintln(w, "No warnings.")
	} else {
		fmt.Fprintf(w, "Warnings (%d)\n", o.warned)
	}
	for _, warning := range o.warnings {
		fmt.Fprintf(w, "  %s\n", warning)
	}
	if o.note != "" {
		fmt.Fprintf(w, "%s.\n", o.note)
	}
	return nil
}

func (o *observation) muxes() *table.Table {
	t := table.New("", "no muxes", "MUX", "STATE", "GENERATION", "XDP", "BGP", "BFD", "FORWARDED", "DROPPED")
	for _, n := range o.status.GetNodes() {
		if n.GetRole() != roleMux {
			continue
		}
		mux := n.GetStatus().GetMux()
		verdicts := mux.GetVerdicts()
		bgp, bfd := table.EstablishedPeers(mux), bfdPeers(mux)
		if !n.GetStatus().GetConnected() {
			bgp, bfd = "unknown", "unknown"
		}
		t.Add(n.GetName(), table.NodeState(n, o.now), table.NodeGeneration(n), mux.GetXdpMode(), bgp, bfd,
			table.CountPackets(verdicts, table.VerdictForward), table.CountPackets(verdicts, table.VerdictDrop))
	}
	return t
}

func (o *observation) hosts() *table.Table {
	tallies := map[string]table.Tally{}
	for _, h := range o.status.GetHostBackends() {
		tallies[h.GetHost()] = table.Tally{
			Total: int(h.GetTotal()), Serving: int(h.GetServing()), Draining: int(h.GetDraining()),
			Unhealthy: int(h.GetUnhealthy()), Unknown: int(h.GetUnknown()),
		}
	}
	t := table.New("", "no hosts",
		"HOST", "STATE", "GENERATION", "BACKENDS", "SESSIONS", "DELIVERED", "REPLIED", "DROPPED")
	for _, n := range o.status.GetNodes() {
		if n.GetRole() != roleHost {
			continue
		}
		host := n.GetStatus().GetHost()
		verdicts := host.GetVerdicts()
		t.Add(n.GetName(), table.NodeState(n, o.now), table.NodeGeneration(n), tallies[n.GetName()], host.GetSessions(),
			table.CountPackets(verdicts, table.VerdictDeliver), table.CountPackets(verdicts, table.VerdictReply),
			table.CountPackets(verdicts, table.VerdictDrop))
	}
	return t
}

// bfdPeers is "2/2" where sessions have BFD: those that are up, of all that have it.
func bfdPeers(mux *weirv1.MuxStatus) string {
	up, all := 0, 0
	for _, p := range mux.GetPeers() {
		switch p.GetBfd() {
		case "up":
			up++
			all++
		case "down":
			all++
		}
	}
	if all == 0 {
		return "off"
	}
	return fmt.Sprintf("%d/%d", up, all)
}
