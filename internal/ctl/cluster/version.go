package cluster

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/daemon"
	"github.com/weirlb/weir/internal/rpc"
)

// programVersion is what one program runs, beside what the managers do.
type programVersion struct {
	Program string `json:"program"`
	Name    string `json:"name,omitempty"`
	Version string `json:"version"`
	Skewed  bool   `json:"skewed"` // another version than the manager's that answered
}

// VersionCommand returns the command version.
func VersionCommand(s *session.Session) *cobra.Command {
	var own bool
	cmd := &cobra.Command{
		Use: "version", Short: "Show the versions of all programs, and which differ", Args: session.Arguments(0, 0, ""),
		Long: `Show the version of this program, of the manager that answers, and of each mux and host.

A program that runs another version than that manager is marked. One version of skew
works while an installation is upgraded: managers first, then muxes, then hosts.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found := []programVersion{{Program: "weir", Version: daemon.Version}}
			if !own {
				if err := s.Call(cmd.Context(), func(ctx context.Context, c *rpc.Client) (err error) {
					found, err = versions(ctx, c, found)
					return err
				}); err != nil {
					return err
				}
			}
			return s.Output.Print(cmd.OutOrStdout(), found, func(w io.Writer) error {
				table := table.New("", "", "PROGRAM", "NAME", "VERSION", "NOTE")
				for _, v := range found {
					note := ""
					if v.Skewed {
						note = "differs from the manager"
					}
					table.Add(v.Program, v.Name, v.Version, note)
				}
				return table.Write(w)
			})
		},
	}
	cmd.Flags().BoolVar(&own, "client", false, "only of this program; no manager is asked")
	s.Output.AddFlag(cmd)
	return cmd
}

func versions(ctx context.Context, c *rpc.Client, found []programVersion) ([]programVersion, error) {
	status, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	found = append(found, programVersion{Program: "weir-manager", Version: status.GetVersion()})
	programs := map[string]string{"mux": "weir-mux", "host": "weir-agent", "switch": "weir-switch"}
	for _, n := range status.GetNodes() {
		found = append(found, programVersion{Program: programs[n.GetRole()], Name: n.GetName(), Version: n.GetVersion()})
	}
	for i := range found {
		found[i].Skewed = found[i].Version != status.GetVersion()
	}
	return found, nil
}
