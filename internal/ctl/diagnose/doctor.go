package diagnose

import (
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/doctor"
)

// DoctorCommand returns the command doctor.
func DoctorCommand(s *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check a machine, or the path of packets, and say what to do",
		Long: `Check a machine, or the path of packets, and say what to do.

One line for each thing looked at: ok, warn or fail, what is there, and what to do about
it. Nothing is changed. Exit status: 0 nothing failed, 1 something did.`,
	}
	session.Group(cmd)
	cmd.AddCommand(
		machineCommand(s, doctor.Mux, "interface", "eth0", "interface that packets of VIPs arrive on", "/var/lib/weir-mux"),
		machineCommand(s, doctor.Host, "uplink", "eth0", "interface towards the network", "/var/lib/weir-agent"),
		machineCommand(s, doctor.Manager, "", "", "", "/var/lib/weir"),
		pathCommand(s),
	)
	return cmd
}

// machineCommand checks this machine as one of a role.
func machineCommand(s *session.Session, role doctor.Role, flag, device, usage, dataDir string) *cobra.Command {
	subject := doctor.Subject{Role: role}
	cmd := &cobra.Command{
		Use: string(role), Short: "Check whether this machine is fit to be a " + string(role),
		Args: session.Arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			access, err := s.Access()
			if err != nil {
				return err
			}
			subject.Managers, subject.Connect = access.Managers, s.Connect
			return printFindings(s, cmd, doctor.Examine(cmd.Context(), subject))
		},
	}
	if flag != "" {
		cmd.Flags().StringVar(&subject.Interface, flag, device, usage)
	}
	cmd.Flags().StringVar(&subject.DataDir, "data-dir", dataDir, "`folder` of the program's certificates")
	s.Output.AddFlag(cmd)
	return cmd
}

func pathCommand(s *session.Session) *cobra.Command {
	var source string
	cmd := &cobra.Command{
		Use: "path VIP:PORT", Short: "Prove the path to an endpoint and back through each mux",
		Args: session.Arguments(1, 1, "VIP:PORT"),
		Long: `Prove the path to an endpoint of TCP and back through each mux.

Run it on a machine that is a client. It opens connections and closes them at once, while
each mux copies what it gets of them, until each mux has had one that was answered. That
proves that routers send to this mux, the mux to a host, the host to a backend, and that
the backend's answer finds its way back.`,
		Example: "  weir doctor path 203.0.113.10:80",
		RunE: func(cmd *cobra.Command, args []string) error {
			endpoint, err := netip.ParseAddrPort(args[0])
			if err != nil {
				return session.NewUsageError(cmd, fmt.Errorf(
					"%q must be an address and a port, as 203.0.113.10:80 or [2001:db8::1]:80", args[0]))
			}
			var from netip.Addr
			if source != "" {
				if from, err = netip.ParseAddr(source); err != nil {
					return session.NewUsageError(cmd, fmt.Errorf("--source %q must be an address", source))
				}
			}
			client, err := s.Connect()
			if err != nil {
				return err
			}
			defer client.Close()
			found, err := doctor.Path(cmd.Context(), client, endpoint, from)
			if err != nil {
				return err
			}
			return printFindings(s, cmd, found)
		},
	}
	cmd.Flags().StringVar(&source, "source", "", "`address` that muxes see of this machine, if a NAT changes it")
	s.Output.AddFlag(cmd)
	return cmd
}

// printFindings prints findings, and fails if one did.
func printFindings(s *session.Session, cmd *cobra.Command, found []doctor.Finding) error {
	err := s.Output.Print(cmd.OutOrStdout(), found, func(w io.Writer) error {
		table := table.New("", "nothing was looked at", "LEVEL", "CHECK", "REASON")
		for _, f := range found {
			reason := f.Reason
			if f.Next != "" {
				reason += "; next: " + f.Next
			}
			table.Add(string(f.Level), f.Check, reason)
		}
		return table.Write(w)
	})
	if err != nil {
		return err
	}
	if doctor.Worst(found) == doctor.Fail {
		return errors.New("something failed: the lines that begin with fail say what to do")
	}
	return nil
}
