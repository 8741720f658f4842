package change

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/manifestfile"
	"github.com/weirlb/weir/internal/ctl/output"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/manifest"
	"github.com/weirlb/weir/internal/rpc"
)

// ApplyCommand returns the command apply.
func ApplyCommand(s *session.Session) *cobra.Command {
	var files []string
	var dryRun, strict bool
	var wait waiting
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create or update VIPs, pools, prefix lists, networks, the fabric and tenants from manifests",
		Long: `Create or update the VIPs, address pools, prefix lists, virtual networks and the overlay
that manifests describe: all of them, or none if there is anything wrong with one. Tenants are applied before them, by themselves:
all of them or none; then the fabric.

FILE is a YAML or JSON file, a folder of such, or - for standard input; -f may be
given several times. A file may hold several documents. The form of Figure 6 of the
paper on Ananta is read too.

More than 8000 VIPs and endpoints at once are written in parts, in their order, after
the manager was asked whether it would take all of them. Of more than 16384 VIPs, or of
262144 endpoints, backends and the like, it is asked in parts too, after weir itself has
looked for conflicts among them. What they need together, as quotas and addresses of
pools, may then end an apply in the middle; and an address that a VIP of one part gives
up is not free for one of another part in the same apply.

A host that has not joined is waited for: what it serves is programmed when it joins, and
the other backends serve meanwhile. With --strict it is an error.

With --dry-run nothing changes. For each endpoint whose table would, it says how many
buckets would move to another backend, and how many wait for the end of earlier moves;
how many connections hosts remember, how many of these carry no cookie, and about how
many of those depend on hosts handing packets on, as their bucket moves; and the memory
of the table in each mux. For each virtual network it says how many workloads come and
go, and which VIPs would be detached.`,
		Example: `  weir apply -f shop.yaml --dry-run
  weir apply -f shop.yaml --wait
  weir get vip shop -o yaml | sed 's/weight: 1$/weight: 0/' | weir apply -f -`,
		Args:              session.Arguments(0, 0, ""),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return session.NewUsageError(cmd, errors.New("-f FILE is missing"))
			}
			if dryRun && wait.wait {
				return session.NewUsageError(cmd, errors.New("--wait has nothing to wait for with --dry-run"))
			}
			return apply(s, cmd, files, dryRun, strict, wait)
		},
	}
	manifestfile.AddFlag(cmd, &files, "`file` or folder of manifests, - for standard input; may be repeated")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change, and change nothing")
	cmd.Flags().BoolVar(&strict, "strict", false, "refuse hosts that have not joined, instead of waiting for them")
	wait.flags(cmd)
	s.Output.AddFlag(cmd)
	return cmd
}

func apply(s *session.Session, cmd *cobra.Command, files []string, dryRun, strict bool, wait waiting) error {
	resources, err := manifestfile.Read(cmd, files)
	if err != nil {
		return err
	}
	resources, done, err := applyOthers(s, cmd, resources, dryRun)
	if err != nil {
		return err
	}
	if len(resources) == 0 {
		return nil
	}
	// VIPs come last, as an apply in parts has the others first.
	slices.SortStableFunc(resources, func(a, b manifest.Resource) int { return cmp.Compare(isVIP(a), isVIP(b)) })
	request := applyRequest(resources)
	request.DryRun, request.Strict = dryRun, strict
	response, err := applyVIPs(s, cmd, request, resources)
	if err != nil {
		return afterOthers(err, done)
	}
	err = s.Output.Print(cmd.OutOrStdout(), output.Message{Message: response}, func(w io.Writer) error {
		for _, pool := range response.GetPools() {
			fmt.Fprintf(w, "pool %s %s\n", pool.GetName(), pool.GetChange())
		}
		for _, list := range response.GetPrefixLists() {
			printApplied(w, list)
		}
		for _, overlay := range response.GetOverlays() {
			fmt.Fprintf(w, "overlay %s\n", overlay.GetChange())
		}
		for _, network := range response.GetNetworks() {
			fmt.Fprintln(w, table.AppliedNetwork(network))
		}
		if dryRun {
			return printDryRun(w, response.GetVips())
		}
		for _, vip := range response.GetVips() {
			fmt.Fprintf(w, "vip %s %s\n", vip.GetName(), vip.GetChange())
			printPending(w, vip.GetPending())
		}
		return nil
	})
	if err != nil || dryRun {
		return err
	}
	return wait.forMuxes(s, cmd, response.GetGeneration())
}

// applyOthers applies what has calls of its own, tenants and then fabrics, and returns the other resources, and what was applied.
func applyOthers(
	s *session.Session, cmd *cobra.Command, resources []manifest.Resource, dryRun bool,
) (left []manifest.Resource, done []string, err error) {
	if dryRun {
		for _, r := range resources {
			if isTenant(r) {
				fmt.Fprintf(progress(s, cmd), "tenant %s: a dry run does not look at tenants\n", r.Name())
			}
		}
	} else if err := applyTenants(s, cmd, resources); err != nil {
		return nil, nil, err
	}
	left = slices.DeleteFunc(slices.Clone(resources), isTenant)
	if len(left) < len(resources) && !dryRun {
		done = append(done, "tenants")
	}
	before := len(left)
	if left, err = applyFabrics(s, cmd, left, dryRun); err != nil {
		return nil, nil, afterOthers(err, done)
	}
	if len(left) < before && !dryRun {
		done = append(done, "fabrics")
	}
	return left, done, nil
}

// afterOthers adds to err what was applied by calls before that of which it is.
func afterOthers(err error, done []string) error {
	what := strings.Join(done, " and ")
	var problem *manifestfile.ProblemError
	switch {
	case what == "":
		return err
	case errors.As(err, &problem):
		problem.Beside = what
		return fmt.Errorf("apply: %w", problem) // the text of err is of before
	}
	return fmt.Errorf("%w: %s are applied: apply again to go on", err, what)
}

// applyRequest is the request that applies resources, none of which is a tenant.
func applyRequest(resources []manifest.Resource) *weirv1.ApplyVIPsRequest {
	request := &weirv1.ApplyVIPsRequest{}
	for _, r := range resources {
		switch m := r.Message.(type) {
		case *weirv1.AddressPool:
			request.Pools = append(request.Pools, m)
		case *weirv1.PrefixList:
			request.PrefixLists = append(request.PrefixLists, m)
		case *weirv1.VirtualNetwork:
			request.Networks = append(request.Networks, m)
		case *weirv1.Overlay:
			request.Overlays = append(request.Overlays, m)
		case *weirv1.VIP:
			request.Vips = append(request.Vips, m)
		}
	}
	return request
}

// isVIP is 1 for a VIP, 0 for what comes before VIPs.
func isVIP(r manifest.Resource) int {
	if r.Kind() == manifest.Kind {
		return 1
	}
	return 0
}

func isTenant(r manifest.Resource) bool { return r.Kind() == manifest.KindTenant }

// applyTenants applies tenants, which have a transaction of their own before that of VIPs and pools: their quotas
// and ranges hold for those.
func applyTenants(s *session.Session, cmd *cobra.Command, resources []manifest.Resource) error {
	request := &weirv1.ApplyTenantsRequest{}
	for _, r := range resources {
		if tenant, ok := r.Message.(*weirv1.Tenant); ok {
			request.Tenants = append(request.Tenants, tenant)
		}
	}
	if len(request.GetTenants()) == 0 {
		return nil
	}
	return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
		response, err := client.ApplyTenants(ctx, request)
		if err != nil {
			return fmt.Errorf("apply: %w", manifestfile.Locate(err, resources))
		}
		for _, t := range response.GetTenants() {
			fmt.Fprintf(progress(s, cmd), "tenant %s %s\n", t.GetName(), t.GetChange())
		}
		return nil
	})
}

// applyFabrics applies fabrics, each in a transaction of its own, and returns the other resources.
func applyFabrics(s *session.Session, cmd *cobra.Command, resources []manifest.Resource, dryRun bool) (left []manifest.Resource, err error) {
	for _, r := range resources {
		m, is := r.Message.(*weirv1.Fabric)
		if !is {
			left = append(left, r)
			continue
		}
		err := s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
			response, err := client.UpdateFabric(ctx, &weirv1.UpdateFabricRequest{Name: m.GetName(), Fabric: m, DryRun: dryRun})
			if err != nil {
				return fmt.Errorf("apply: %w", manifestfile.LocateIn(err, r))
			}
			change := response.GetChange()
			if dryRun {
				change = wouldBe(change)
			}
			fmt.Fprintf(progress(s, cmd), "fabric %s %s\n", m.GetName(), change)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return left, nil
}

// progress is where lines for people go that do not belong to the result: nowhere else than the result's table.
func progress(s *session.Session, cmd *cobra.Command) io.Writer {
	if s.Output == output.FormatTable {
		return cmd.OutOrStdout()
	}
	return cmd.ErrOrStderr()
}
