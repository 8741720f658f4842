package ctl

import (
	"cmp"
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/rpc"
)

// callTime bounds one call of the manager.
const callTime = 15 * time.Second

// Config holds what tests replace.
type Config struct {
	Now func() time.Time // nil: time.Now
}

// session is one run of the program.
type session struct {
	manager string // URLs; empty: those of the configuration
	config  string // file; empty: the one of the environment, or of the user
	format  format
	now     func() time.Time
}

// Command returns the root command, weir.
func Command(config Config) *cobra.Command {
	s := &session{format: formatTable, now: config.Now}
	if s.now == nil {
		s.now = time.Now
	}
	root := &cobra.Command{
		Use:   "weir",
		Short: "Operate a Weir load balancer",
		Long: `Operate a Weir load balancer.

Get, describe, status, top, explain and capture show what is there; apply, edit, patch,
delete and prefixlist change it.

Exit status: 0 all went well; 1 something failed or was refused; 2 wrong usage;
3 the change is made, but not every mux ran it within --timeout.`,
		DisableAutoGenTag: true,
	}
	group(root)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &usageError{cmd, err} })
	root.PersistentFlags().StringVar(&s.manager, "manager", s.manager,
		"URL of the manager, several separated by commas; the variable "+rpc.ManagerVariable+" does the same")
	root.PersistentFlags().StringVar(&s.config, "config", "",
		"`file` that says where the managers are and who you are; the variable "+rpc.ConfigVariable+" does the same")
	root.AddCommand(
		applyCommand(s), editCommand(s), patchCommand(s), deleteCommand(s), prefixListCommand(s),
		getCommand(s), describeCommand(s), statusCommand(s), topCommand(s), explainCommand(s), captureCommand(s), snatCommand(s), doctorCommand(s), versionCommand(s),
		backupCommand(s), restoreCommand(), caCommand(), planCommand(s),
		tokenCommand(s), userCommand(s), revokeCommand(s), auditCommand(s),
	)
	return root
}

// connect returns a client of the manager; the caller closes it.
func (s *session) connect() (*rpc.Client, error) {
	access, err := s.access()
	if err != nil {
		return nil, err
	}
	return access.Client()
}

// access is where the managers are and who calls them: a flag beats the environment, which beats the file.
func (s *session) access() (rpc.Access, error) {
	access, err := rpc.ReadConfig(s.config)
	access.Managers = cmp.Or(s.manager, os.Getenv(rpc.ManagerVariable), access.Managers, rpc.DefaultManager)
	return access, err
}

// call runs do with a client and a bound on its time.
func (s *session) call(ctx context.Context, do func(context.Context, *rpc.Client) error) error {
	return s.callWithin(ctx, callTime, do)
}

// callWithin is call, of a limit of its own.
func (s *session) callWithin(ctx context.Context, limit time.Duration, do func(context.Context, *rpc.Client) error) error {
	client, err := s.connect()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return do(ctx, client)
}
