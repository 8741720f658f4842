package agentd

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/agentd/overlay"
	"github.com/weirlb/weir/internal/daemon"
)

// NetworkCommands are the commands for virtual networks of weir-agent.
func NetworkCommands(o *Options) []*cobra.Command {
	return []*cobra.Command{portCommand(o), whoisCommand(o)}
}

func portCommand(o *Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "port",
		Short: "Tell the interfaces of virtual networks' workloads, and say which they are",
		Long: `Tell the interfaces of virtual networks' workloads on this host, and say which they are, where the network does not
know it: an orchestrator names them when it starts a workload. The workload must be one that its network has on this host;
its addresses are those that the network says.`,
	}
	cmd.AddCommand(portListCommand(o), portAddCommand(o), portRemoveCommand(o))
	return cmd
}

func portListCommand(o *Options) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the ports that are in force; works without the daemon", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, err := readNetworks(o.PinPath)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "INTERFACE\tVNI\tMAC\tADDRESSES")
			if status != nil {
				for _, p := range status.Ports {
					fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", p.Interface, p.VNI, p.MAC, join(p.Addresses))
				}
			}
			return w.Flush()
		},
	}
}

func join(addresses []netip.Addr) string {
	texts := make([]string, len(addresses))
	for i, a := range addresses {
		texts[i] = a.String()
	}
	return strings.Join(texts, ", ")
}

func dataDirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "data-dir", "/var/lib/weir-agent", "directory of the daemon, where it reads ports")
}

func portAddCommand(*Options) *cobra.Command {
	var dir string
	var name overlay.WorkloadName
	cmd := &cobra.Command{
		Use: "add INTERFACE", Short: "Say which interface a workload has, instead of the one that its network names", Args: cobra.ExactArgs(1),
		Example: "  weir-agent port add vnet3 --network acme-prod --workload web-1",
		RunE: func(_ *cobra.Command, args []string) error {
			return changeInterfaces(dir, func(all overlay.Interfaces) error { return all.Set(name, args[0]) })
		},
	}
	dataDirFlag(cmd, &dir)
	cmd.Flags().StringVar(&name.Network, "network", "", "name of the virtual network (required)")
	cmd.Flags().StringVar(&name.Workload, "workload", "", "name of the workload in it (required)")
	return cmd
}

func portRemoveCommand(*Options) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "rm INTERFACE", Short: "Take back what add has said: the workload has the interface that its network names", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return changeInterfaces(dir, func(all overlay.Interfaces) error { return all.Remove(args[0]) })
		},
	}
	dataDirFlag(cmd, &dir)
	return cmd
}

func changeInterfaces(dir string, change func(overlay.Interfaces) error) error {
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("read --data-dir: %w: name the daemon's", err)
	}
	return overlay.ChangeInterfaces(dir, change)
}

func whoisCommand(o *Options) *cobra.Command {
	format := "text"
	cmd := &cobra.Command{
		Use: "whois ADDRESS:PORT", Short: "Tell which client of a virtual network a server here sees by a local address", Args: cobra.ExactArgs(1),
		Example: "  weir-agent whois 100.80.51.64:40000",
		RunE: func(cmd *cobra.Command, args []string) error {
			local, err := netip.ParseAddrPort(args[0])
			if err != nil {
				return fmt.Errorf("read the local address: must be an address and a port such as 100.80.51.64:40000, is %.60q", args[0])
			}
			if format != "text" && format != "json" {
				return fmt.Errorf("read -o: must be text or json, is %q", format)
			}
			if err := daemon.CheckRoot(); err != nil {
				return err
			}
			client, err := overlay.Whois(networkPins(o.PinPath), local)
			if err != nil {
				return err
			}
			if format == "json" {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(client)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), client.Line())
			return err
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", format, "text or json")
	return cmd
}

// readNetworks is what runs for virtual networks; nil: nothing does.
func readNetworks(pinPath string) (*overlay.Status, error) {
	if err := daemon.CheckRoot(); err != nil {
		return nil, err
	}
	return overlay.ReadStatus(networkPins(pinPath))
}

// writeNetworks writes it for people.
func writeNetworks(to io.Writer, s *overlay.Status) {
	if s == nil {
		return
	}
	fmt.Fprintln(to, "\nNETWORK\tVIP\tSERVICE")
	for _, a := range s.Attachments {
		fmt.Fprintf(to, "%d\t%s\t%s\n", a.VNI, a.VIP, a.Service)
	}
	for _, state := range overlay.States(s.Sessions) {
		fmt.Fprintf(to, "network sessions %s\t%d\n", state, s.Sessions[state])
	}
	for _, state := range overlay.States(s.Flows) {
		fmt.Fprintf(to, "network flows %s\t%d\n", state, s.Flows[state])
	}
	daemon.WriteVerdicts(to, s.Verdicts)
}
