package ctl

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rpc"
)

func (s *session) getManagersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "managers",
		Aliases: []string{"manager"},
		Short:   "List the replicas of the manager: who leads, and how each of them is",
		Args:    arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				response, err := client.ListManagers(ctx, &weirv1.ListManagersRequest{})
				if err != nil {
					return fmt.Errorf("list managers: %w", err)
				}
				return s.print(cmd.OutOrStdout(), messages(response.GetManagers()), managerTable(response.GetManagers()).write)
			})
		},
	}
	s.outputFlag(cmd)
	return cmd
}

func managerTable(managers []*weirv1.Manager) *columns {
	t := newColumns("", "no managers", "NAME", "ROLE", "STATE", "GENERATION", "STORE", "ADDRESS", "PEER ADDRESS", "VERSION")
	for _, m := range managers {
		r := m.GetReplica()
		t.add(m.GetName(), managerRole(m), managerState(m), r.GetGeneration(),
			fmt.Sprintf("%.1f MiB", float64(r.GetStoreBytes())/(1<<20)), m.GetAddress(), m.GetPeerAddress(), r.GetVersion())
	}
	return t
}

func managerRole(m *weirv1.Manager) string {
	switch {
	case m.GetLeader():
		return "leader"
	case m.GetLearner():
		return "learner"
	}
	return "follower"
}

// managerState is what is wrong with a manager, or that it is well.
func managerState(m *weirv1.Manager) string {
	switch {
	case m.GetProblem() != "":
		return "away: " + m.GetProblem()
	case len(m.GetReplica().GetWarnings()) > 0:
		return strings.Join(m.GetReplica().GetWarnings(), "; ")
	}
	return "well"
}

func (s *session) deleteManagerCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "manager NAME",
		Short: "Take a manager out of the cluster for good, alive or dead",
		Long: `Take a manager out of the cluster for good, alive or dead. Its program ends; to join again
it needs an empty data directory.`,
		Args: arguments(1, 1, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := s.call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				_, err := client.DeleteManager(ctx, &weirv1.DeleteManagerRequest{Name: args[0]})
				return err
			})
			if err != nil {
				return fmt.Errorf("delete manager %s: %w", args[0], err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "manager %s deleted\n", args[0])
			return nil
		},
	}
}
