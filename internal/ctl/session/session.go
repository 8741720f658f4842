package session

import (
	"cmp"
	"context"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/ctl/output"
	"github.com/weirlb/weir/internal/rpc"
)

// CallTime bounds one call of the manager.
const CallTime = 15 * time.Second

// Session is one run of the program.
type Session struct {
	Output output.Format
	Now    func() time.Time

	color    output.Color
	managers string // URLs; empty: those of the configuration
	config   string // file; empty: the one of the environment, or of the user

	errOut     io.Writer   // of the command
	progresses atomic.Bool // a Progress has the terminal's line
}

// New returns a session that writes tables and takes the time from now; nil: time.Now.
func New(now func() time.Time) *Session {
	if now == nil {
		now = time.Now
	}
	return &Session{Output: output.FormatTable, Now: now, color: output.ColorAuto, errOut: io.Discard}
}

// AddFlags adds the flags of all commands to the root command.
func (s *Session) AddFlags(root *cobra.Command) {
	root.PersistentFlags().StringVar(&s.managers, "manager", s.managers,
		"URL of the manager, several separated by commas; the variable "+rpc.ManagerVariable+" does the same")
	root.PersistentFlags().StringVar(&s.config, "config", "",
		"`file` that says where the managers are and who you are; the variable "+rpc.ConfigVariable+" does the same")
	root.PersistentFlags().Var(&s.color, "color", "colour of states: auto (on a terminal, unless NO_COLOR is set), always or never")
	CompleteFlag(root, "color", string(output.ColorAuto), string(output.ColorAlways), string(output.ColorNever))
}

// painted are the commands, by their names below the root, that show states.
var painted = []string{"get", "status", "describe", "doctor", "snat", "placement"}

// Begin has a command that shows states colour them where that is wanted, and calls that take long tell so where it tells
// errors. Other commands get standard output as it is.
func (s *Session) Begin(cmd *cobra.Command) {
	s.errOut = cmd.ErrOrStderr()
	top := cmd
	for top.HasParent() && top.Parent().HasParent() {
		top = top.Parent()
	}
	if slices.Contains(painted, top.Name()) {
		cmd.SetOut(s.color.Of(cmd.OutOrStdout(), os.Getenv))
	}
}

// Connect returns a client of the manager; the caller closes it.
func (s *Session) Connect() (*rpc.Client, error) {
	access, err := s.Access()
	if err != nil {
		return nil, err
	}
	return access.Client()
}

// Access is where the managers are and who calls them: a flag beats the environment, which beats the file.
func (s *Session) Access() (rpc.Access, error) {
	access, err := rpc.ReadConfig(s.config)
	access.Managers = cmp.Or(s.managers, os.Getenv(rpc.ManagerVariable), access.Managers, rpc.DefaultManager)
	access.Around = s.waits(access.Managers)
	return access, err
}

// ManagersOr are the managers that a flag or the environment names, else these, else those of the user's configuration.
func (s *Session) ManagersOr(managers string) string {
	access, _ := rpc.ReadConfig(s.config) // Access says what is wrong with it
	return cmp.Or(s.managers, os.Getenv(rpc.ManagerVariable), managers, access.Managers, rpc.DefaultManager)
}

// Call runs do with a client and a bound on its time.
func (s *Session) Call(ctx context.Context, do func(context.Context, *rpc.Client) error) error {
	return s.CallWithin(ctx, CallTime, do)
}

// CallWithin is Call with a bound of its own.
func (s *Session) CallWithin(
	ctx context.Context, limit time.Duration, do func(context.Context, *rpc.Client) error,
) error {
	client, err := s.Connect()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return do(ctx, client)
}
