package diagnose

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/daemon"
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
		pathCommand(s),
	)
	for _, of := range machines {
		cmd.AddCommand(machineCommand(s, of))
	}
	return cmd
}

// machine is a role of machines, and where its daemon's configuration stands.
type machine struct {
	role           doctor.Role
	file           string // of the daemon's configuration
	dataDir        string // unless that says otherwise
	flag, usage    string // of the interface; empty: the role has none
	deviceIfUnsaid string
}

var machines = []machine{
	{doctor.Mux, "/etc/weir/mux.yaml", "/var/lib/weir-mux", "interface", "interface that packets of VIPs arrive on", "eth0"},
	{doctor.Host, "/etc/weir/agent.yaml", "/var/lib/weir-agent", "uplink", "interface towards the network", "eth0"},
	{doctor.Manager, "/etc/weir/manager.yaml", "/var/lib/weir", "", "", ""},
}

// machineCommand checks this machine as one of a role.
func machineCommand(s *session.Session, of machine) *cobra.Command {
	var file, device, dataDir string
	cmd := &cobra.Command{
		Use: string(of.role), Short: "Check whether this machine is fit to be a " + string(of.role),
		Long: "Check whether this machine is fit to be a " + string(of.role) + `.

What no flag says is taken from the daemon's configuration, if there is one. Run it as root.
Checks that ask the managers need a user with the role viewer, whose configuration --config
names; without one they can't tell.`,
		Args: session.Arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			keys, err := daemon.ReadConfig(file)
			var found []doctor.Finding
			switch {
			case err == nil:
			case !errors.Is(err, os.ErrNotExist):
				found = append(found, doctor.Finding{
					Check: "config", Level: doctor.Fail, Reason: fmt.Sprintf("read the daemon's configuration: %v", err),
					Next: "mend it, or run this as root; what it says is not known to the checks below",
				})
			case cmd.Flags().Changed("daemon-config"):
				return fmt.Errorf("read the daemon's configuration: %w", err)
			}
			access, err := s.Access()
			if err != nil {
				return err
			}
			subject := doctor.Subject{
				Role: of.role, Interface: cmp.Or(device, keys.Value(of.flag), of.deviceIfUnsaid),
				DataDir: cmp.Or(dataDir, keys.Value("data-dir"), of.dataDir), Managers: s.ManagersOr(managersOf(of.role, keys)),
			}
			access.Managers = subject.Managers
			subject.Connect = access.Client
			progress := s.Progress(cmd.ErrOrStderr())
			subject.Begin = func(check string) { progress.Tell("checking %s", check) }
			found = append(found, doctor.Examine(cmd.Context(), subject)...)
			progress.Done()
			return PrintFindings(s, cmd, found)
		},
	}
	if of.flag != "" {
		cmd.Flags().StringVar(&device, of.flag, "", of.usage+"; else that of the daemon's configuration, or "+of.deviceIfUnsaid)
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "`folder` of the program's certificates; else that of the daemon's configuration, or "+of.dataDir)
	cmd.Flags().StringVar(&file, "daemon-config", of.file, "`file` of the daemon's configuration")
	s.Output.AddFlag(cmd)
	return cmd
}

// managersOf are the managers that the daemon of this machine calls, or is; empty: its configuration does not say.
func managersOf(role doctor.Role, keys daemon.Keys) string {
	if role != doctor.Manager {
		return keys.Value("manager")
	}
	address := cmp.Or(keys.Value("advertise"), keys.Value("listen"))
	if address == "" || keys.Value("insecure") != "true" {
		return address
	}
	return "http://" + address
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
the backend's answer finds its way back. It takes a user with the role operator in all
tenants.`,
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
			progress := s.Progress(cmd.ErrOrStderr())
			progress.Tell("connecting to %s, until each mux has had an answered connection", endpoint)
			found, err := doctor.Path(cmd.Context(), client, endpoint, from)
			progress.Done()
			if err != nil {
				return err
			}
			return PrintFindings(s, cmd, found)
		},
	}
	cmd.Flags().StringVar(&source, "source", "", "`address` that muxes see of this machine, if a NAT changes it")
	s.Output.AddFlag(cmd)
	return cmd
}

// PrintFindings prints findings, and fails if one did.
func PrintFindings(s *session.Session, cmd *cobra.Command, found []doctor.Finding) error {
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
