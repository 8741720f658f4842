package ctl

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/ctl/bundle"
	"github.com/weirlb/weir/internal/ctl/change"
	"github.com/weirlb/weir/internal/ctl/cluster"
	"github.com/weirlb/weir/internal/ctl/describe"
	"github.com/weirlb/weir/internal/ctl/diagnose"
	"github.com/weirlb/weir/internal/ctl/get"
	"github.com/weirlb/weir/internal/ctl/importer"
	"github.com/weirlb/weir/internal/ctl/join"
	"github.com/weirlb/weir/internal/ctl/placement"
	"github.com/weirlb/weir/internal/ctl/plan"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/snat"
	"github.com/weirlb/weir/internal/ctl/uiproxy"
)

// Config holds what tests replace.
type Config struct {
	Now func() time.Time // nil: time.Now
}

// Command returns the root command, weir.
func Command(config Config) *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "Operate a Weir load balancer",
		Long: `Operate a Weir load balancer.

Get, describe, status, top, explain, capture and connections show what is there; apply,
edit, patch, delete, backend, prefixlist, drain and undrain change it.

Exit status: 0 all went well; 1 something failed or was refused; 2 wrong usage;
3 the change is made, but not every mux ran it within --timeout.`,
		DisableAutoGenTag: true,
	}
	session.Group(root)
	root.SetFlagErrorFunc(session.NewUsageError)
	s := session.New(config.Now)
	s.AddFlags(root)
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) { s.Begin(cmd) }
	root.AddCommand(
		change.ApplyCommand(s), change.EditCommand(s), change.PatchCommand(s), change.DeleteCommand(s),
		change.PrefixListCommand(s), change.BackendCommand(s), change.DrainCommand(s), change.UndrainCommand(s),
		get.Command(s), placement.Command(s), describe.Command(s), snat.Command(s), plan.Command(s),
		diagnose.StatusCommand(s), diagnose.TopCommand(s), diagnose.ExplainCommand(s), diagnose.CaptureCommand(s), diagnose.ObserveCommand(s),
		diagnose.ConnectionsCommand(s), diagnose.DoctorCommand(s), uiproxy.Command(s), bundle.Command(s), importer.Command(),
		join.Command(s), cluster.TokenCommand(s), cluster.UserCommand(s), cluster.RevokeCommand(s), cluster.AuditCommand(s),
		cluster.BackupCommand(s), cluster.RestoreCommand(), cluster.CACommand(), cluster.VersionCommand(s),
	)
	return root
}
