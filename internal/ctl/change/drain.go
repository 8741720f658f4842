package change

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/rpc"
)

// DrainCommand returns the command drain.
func DrainCommand(s *session.Session) *cobra.Command {
	cmd := &cobra.Command{Use: "drain", Short: "Take a switch out of service: its VIPs leave it"}
	session.Group(cmd)
	cmd.AddCommand(drainSwitchCommand(s))
	return cmd
}

// UndrainCommand returns the command undrain.
func UndrainCommand(s *session.Session) *cobra.Command {
	cmd := &cobra.Command{Use: "undrain", Short: "Put a drained switch back into service"}
	session.Group(cmd)
	cmd.AddCommand(undrainSwitchCommand(s))
	return cmd
}

func drainSwitchCommand(s *session.Session) *cobra.Command {
	var d drained
	cmd := &cobra.Command{
		Use:   "switch NAME",
		Short: "Drain a switch: the VIPs in it leave, and no other one goes into it",
		Long: `Drain a switch: the VIPs in it leave, and no other one goes into it, until weir undrain
switch. Their packets go to the other switches that serve them, or to the muxes.
Connections go on: hosts find their backends.

With --wait the command returns when the switch holds nothing any more: then it may be
rebooted or taken away. With --dry-run nothing changes.`,
		Example: `  weir drain switch sw1 --dry-run
  weir drain switch sw1 --wait`,
		Args:              session.Arguments(1, 1, "NAME"),
		ValidArgsFunction: s.Complete(1, session.SwitchNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if d.dryRun && d.wait {
				return session.NewUsageError(cmd, errors.New("--wait has nothing to wait for with --dry-run"))
			}
			return d.run(s, cmd, args[0])
		},
	}
	cmd.Flags().BoolVar(&d.dryRun, "dry-run", false, "say what would leave the switch, and change nothing")
	cmd.Flags().BoolVar(&d.wait, "wait", false, "return when the switch holds no VIP any more")
	cmd.Flags().DurationVar(&d.timeout, "timeout", 5*time.Minute, "how long to wait with --wait")
	return cmd
}

// drainPoll is the time between two questions how far a drain is: each answer names up to a thousand VIPs.
const drainPoll = 500 * time.Millisecond

// drained holds the flags of drain switch.
type drained struct {
	dryRun, wait bool
	timeout      time.Duration
}

func (d drained) run(s *session.Session, cmd *cobra.Command, name string) error {
	now, err := d.ask(s, cmd.Context(), name, d.dryRun)
	if err != nil {
		return fmt.Errorf("drain switch %s: %w", name, err)
	}
	if d.dryRun {
		return tellDrain(cmd.OutOrStdout(), name, now)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "switch %s is drained, %d VIPs leave it\n", name, now.GetHeld())
	if !d.wait {
		return nil
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), d.timeout)
	defer cancel()
	ticker := time.NewTicker(drainPoll)
	defer ticker.Stop()
	for now.GetHeld() > 0 {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return &heldError{name, d.timeout, now}
		}
		switch next, err := d.ask(s, ctx, name, true); {
		case err == nil:
			now = next
		case ctx.Err() == nil:
			return fmt.Errorf("wait for switch %s: %w", name, err)
		}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "switch %s holds no VIP\n", name)
	return nil
}

func (d drained) ask(s *session.Session, ctx context.Context, name string, dryRun bool) (p *weirv1.DrainSwitchResponse, err error) {
	err = s.Call(ctx, func(ctx context.Context, client *rpc.Client) error {
		p, err = client.DrainSwitch(ctx, &weirv1.DrainSwitchRequest{Name: name, DryRun: dryRun})
		return err
	})
	return p, err
}

// tellDrain says which VIPs leave the switch, and who serves them then.
func tellDrain(w io.Writer, name string, p *weirv1.DrainSwitchResponse) error {
	t := table.New("", "switch "+name+" holds no VIP", "VIP", "ADDRESS", "PHASE", "THEN SERVED BY")
	for _, v := range p.GetVips() {
		by := "muxes"
		if len(v.GetSwitches()) > 0 {
			by = strings.Join(v.GetSwitches(), ", ")
		}
		t.Add(v.GetVip(), v.GetAddress(), v.GetPhase(), by)
	}
	if err := t.Write(w); err != nil {
		return err
	}
	if more := int(p.GetTotal()) - len(p.GetVips()); more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
	return nil
}

// heldError says that a switch still holds VIPs.
type heldError struct {
	name    string
	timeout time.Duration
	last    *weirv1.DrainSwitchResponse
}

func (e *heldError) Error() string {
	why := ""
	if !e.last.GetConnected() {
		why = ": it has no stream, and counts as withdrawn after eleven minutes without one"
	}
	return fmt.Sprintf("switch %s holds %d VIPs after %s%s", e.name, e.last.GetHeld(), e.timeout, why)
}

// ExitCode is what the program ends with.
func (e *heldError) ExitCode() int { return 3 }

func undrainSwitchCommand(s *session.Session) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:               "switch NAME",
		Short:             "Undo the drain of a switch: the VIPs that are to be in it come back",
		Args:              session.Arguments(1, 1, "NAME"),
		ValidArgsFunction: s.Complete(1, session.SwitchNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				p, err := client.UndrainSwitch(ctx, &weirv1.UndrainSwitchRequest{Name: args[0], DryRun: dryRun})
				if err != nil {
					return fmt.Errorf("undrain switch %s: %w", args[0], err)
				}
				is := "is drained no more"
				if dryRun {
					is = "would be drained no more"
				}
				fmt.Fprintf(cmd.OutOrStdout(), "switch %s %s, %d VIPs may go into it\n", args[0], is, p.GetTotal())
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say how many VIPs would come back, and change nothing")
	return cmd
}
