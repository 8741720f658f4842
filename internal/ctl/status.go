package ctl

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/manifest"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

const (
	roleMux  = string(model.RoleMux)
	roleHost = string(model.RoleHost)
)

func statusCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the whole installation does, and what is wrong with it",
		Long: `Show how the whole installation does: the manager, the muxes with their BGP sessions,
the hosts, the first 100 VIPs. What needs attention, of all VIPs, stands at the end, with
what to do.`,
		Args:              arguments(0, 0, ""),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				o, err := s.observe(ctx, client)
				if err != nil {
					return fmt.Errorf("get the status: %w", err)
				}
				value := statusDocument{Manager: message{o.status}, VIPs: vipDocuments(o.vips), Warnings: o.warnings}
				return s.print(cmd.OutOrStdout(), value, o.write)
			})
		},
	}
	s.outputFlag(cmd)
	return cmd
}

// shownVIPs is how many VIPs are shown, by name. All of them are counted, and warned of.
const shownVIPs = 100

// statusDocument is the status as JSON and YAML.
type statusDocument struct {
	Manager  message             `json:"manager"`
	VIPs     []manifest.Document `json:"vips"` // at most shownVIPs
	Warnings []string            `json:"warnings"`
}

// observation is what the manager knows, at one time.
type observation struct {
	session  *session
	managers string // URLs
	status   *weirv1.GetStatusResponse
	vips     []*weirv1.VIP // at most shownVIPs
	warnings []string
	warned   int // how many warnings there are, with those that are left out
}

func (s *session) observe(ctx context.Context, client *rpc.Client) (*observation, error) {
	status, err := client.GetStatus(ctx, &weirv1.GetStatusRequest{})
	if err != nil {
		return nil, err
	}
	vips, err := client.ListVIPs(ctx, &weirv1.ListVIPsRequest{PageSize: shownVIPs})
	if err != nil {
		return nil, err
	}
	access, err := s.access()
	if err != nil {
		return nil, err
	}
	o := &observation{session: s, managers: access.Managers, status: status, vips: vips.GetVips(), warnings: []string{}}
	o.warn()
	return o, nil
}

func (o *observation) write(w io.Writer) error {
	s := o.status
	fmt.Fprintf(w, "Manager     %s, version %s, store %s\n", o.managers, s.GetVersion(), s.GetStore())
	fmt.Fprintf(w, "Generation  %d\n", s.GetGeneration())
	fmt.Fprintf(w, "VIPs        %d, with %d endpoints and %d backends, %d of them unhealthy\n",
		s.GetVips(), s.GetEndpoints(), s.GetBackends(), s.GetBackendsUnhealthy())
	for _, table := range []*columns{o.muxes(), o.hosts(), o.vipLines()} {
		fmt.Fprintln(w)
		if err := table.write(w); err != nil {
			return err
		}
	}
	if more := int(s.GetVips()) - len(o.vips); more > 0 {
		fmt.Fprintf(w, "and %d more: weir get vips\n", more)
	}
	fmt.Fprintln(w)
	if len(o.warnings) == 0 {
		fmt.Fprintln(w, "No warnings.")
		return nil
	}
	fmt.Fprintf(w, "Warnings (%d)\n", o.warned)
	for _, warning := range o.warnings {
		fmt.Fprintf(w, "  %s\n", warning)
	}
	return nil
}

func (o *observation) muxes() *columns {
	t := newColumns("", "no muxes", "MUX", "STATE", "GENERATION", "XDP", "BGP", "BFD", "FORWARDED", "DROPPED")
	for _, n := range o.status.GetNodes() {
		if n.GetRole() != roleMux {
			continue
		}
		mux := n.GetStatus().GetMux()
		t.add(n.GetName(), o.session.nodeState(n), generation(n), mux.GetXdpMode(), peers(mux), bfd(mux),
			count(mux.GetVerdicts(), verdictForward), count(mux.GetVerdicts(), verdictDrop))
	}
	return t
}

func (o *observation) hosts() *columns {
	tallies := map[string]tally{}
	for _, h := range o.status.GetHostBackends() {
		tallies[h.GetHost()] = tally{
			total: int(h.GetTotal()), serving: int(h.GetServing()), draining: int(h.GetDraining()),
			down: int(h.GetUnhealthy()), unknown: int(h.GetUnknown()),
		}
	}
	t := newColumns("", "no hosts", "HOST", "STATE", "GENERATION", "BACKENDS", "SESSIONS", "DELIVERED", "REPLIED", "DROPPED")
	for _, n := range o.status.GetNodes() {
		if n.GetRole() != roleHost {
			continue
		}
		host := n.GetStatus().GetHost()
		t.add(n.GetName(), o.session.nodeState(n), generation(n), tallies[n.GetName()], host.GetSessions(),
			count(host.GetVerdicts(), verdictDeliver), count(host.GetVerdicts(), verdictReply),
			count(host.GetVerdicts(), verdictDrop))
	}
	return t
}

func (o *observation) vipLines() *columns {
	t := vipTable(o.vips)
	t.rows[0][0] = "VIP"
	return t
}

// bfd is "2/2" where sessions have BFD: those that are up, of all that have it.
func bfd(mux *weirv1.MuxStatus) string {
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
