package lab

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/daemon"
	"github.com/weirlb/weir/internal/lab/migrate"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/rpc"
)

const defaultName = "weir"

// Command returns the command weir lab.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Build a small datacenter on this machine and try Weir in it",
		Long: `Build a small datacenter of network namespaces on this machine: clients, a real FRR as
the router, muxes, hosts with workloads, a manager. All of it is real but the wires.

Needs root and the package frr.`,
	}
	cmd.AddCommand(upCommand(), downCommand(), statusCommand(), execCommand(), curlCommand(), killCommand(), rebootCommand(), cutCommand(), restoreCommand(), moveCommand(),
		demoCommand(), echoCommand(), loadCommand(), streamCommand(), floodCommand())
	return cmd
}

func nameFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "name", defaultName, "name of the lab: small letters and digits")
}

// binFolder is where this program is, and its siblings.
func binFolder() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	return filepath.Dir(self), nil
}

func upCommand() *cobra.Command {
	plan := netlab.Plan{}
	picture := false
	cmd := &cobra.Command{
		Use: "up", Short: "Build a lab", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			if picture {
				if err := plan.Validate(); err != nil {
					return err
				}
				fmt.Fprint(out, plan.Picture())
				return nil
			}
			bin, err := binFolder()
			if err != nil {
				return err
			}
			if _, err := netlab.Up(cmd.Context(), netlab.Config{Plan: plan, Bin: bin}); err != nil {
				return err
			}
			fmt.Fprint(out, plan.Picture())
			fmt.Fprint(out, usage(plan))
			return nil
		},
	}
	nameFlag(cmd, &plan.Name)
	flags := cmd.Flags()
	flags.IntVar(&plan.Clients, "clients", 1, "number of clients")
	flags.IntVar(&plan.Muxes, "muxes", 2, "number of muxes")
	flags.IntVar(&plan.Hosts, "hosts", 3, "number of hosts")
	flags.IntVar(&plan.Workloads, "workloads", 2, "number of workloads on each host")
	flags.IntVar(&plan.Outside, "outside", 0, "number of servers outside of the datacenter, for workloads to reach")
	flags.IntVar(&plan.Switches, "switches", 0, "number of switches that serve VIPs in their own tables; muxes then announce aggregates")
	flags.StringVar(&plan.Fabric, "fabric", "",
		"network of switches above muxes and hosts, as 2x2x2x2: containers, ToRs and aggregation switches of each, cores")
	flags.StringVar(&plan.SwitchDriver, "switch-driver", "xdp", "driver of the fabric's switches: xdp, or linux, by which VIPs go into cores alone, with IPv6 tunnels")
	flags.BoolVar(&plan.Segment, "segment", false, "muxes and router on one Ethernet segment without BGP: muxes answer ARP and NDP for VIPs")
	flags.IntVar(&plan.Networks, "networks", 0, "number of tenants' virtual networks, with workloads on two more hosts")
	flags.IntVar(&plan.Managers, "managers", 1, "number of managers: 1, 3 or 5")
	flags.BoolVar(&picture, "picture", false, "print the picture only, and build nothing")
	return cmd
}

// usage says what to do with a lab that stands.
func usage(plan netlab.Plan) string {
	option := ""
	if plan.Name != defaultName {
		option = " --name " + plan.Name
	}
	text := `
The lab is up. Try:
  weir lab exec@ MANAGER weir apply -f examples/shop.yaml --wait
  weir lab curl@ http://203.0.113.10/
  weir lab exec@ MANAGER weir status
  weir lab exec@ router ip route show proto bgp
`
	if plan.Networks > 0 {
		text += `  weir lab exec@ MANAGER weir apply -f FILE --wait
  weir lab exec@ acme1 curl http://10.99.0.1/
`
	}
	text += "  weir lab down@\n"
	return strings.NewReplacer("@", option, "MANAGER", plan.Of(netlab.Manager)[0].Name,
		"FILE", filepath.Join(netlab.Root, plan.Name, "networks.yaml")).Replace(text)
}

func downCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "down", Short: "Take a lab down; leaves nothing behind, also after a crash", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := needRoot(); err != nil {
				return err
			}
			return netlab.Down(name)
		},
	}
	nameFlag(cmd, &name)
	return cmd
}

func needRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("must run as root, to work with network namespaces: use sudo")
	}
	return nil
}

func open(name string) (*netlab.Lab, error) {
	if err := needRoot(); err != nil {
		return nil, err
	}
	lab, err := netlab.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no lab %s: build it with weir lab up --name %[1]s", name)
	}
	return lab, err
}

func statusCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "status", Short: "Show a lab's picture, nodes and programs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lab, err := open(name)
			if err != nil {
				return err
			}
			return writeStatus(cmd.OutOrStdout(), lab)
		},
	}
	nameFlag(cmd, &name)
	return cmd
}

func writeStatus(w io.Writer, lab *netlab.Lab) error {
	fmt.Fprint(w, lab.Picture())
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tIPV4\tIPV6\tPROGRAM")
	for _, n := range lab.Nodes() {
		programs := make([]string, 0, 1)
		for _, p := range lab.Processes(n.Name) {
			programs = append(programs, fmt.Sprintf("%s (%d)", p.Name, p.PID))
		}
		if len(programs) == 0 {
			programs = append(programs, "-")
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", n.Name, n.IPv4, n.IPv6, strings.Join(programs, ", "))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nLogs are in %s.\n", lab.LogDir())
	return nil
}

func execCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "exec NODE COMMAND...", Short: "Run a command on a node", Args: cobra.MinimumNArgs(2),
		Example: "  weir lab exec mux1 ip -s link\n  weir lab exec manager weir status",
		RunE: func(cmd *cobra.Command, args []string) error {
			lab, err := open(name)
			if err != nil {
				return err
			}
			return runOn(cmd, lab, args[0], args[1:])
		},
	}
	nameFlag(cmd, &name)
	cmd.Flags().SetInterspersed(false) // what follows the node is the command's
	return cmd
}

func curlCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "curl URL...", Short: "Call a URL from client1; options of curl may follow it", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			lab, err := open(name)
			if err != nil {
				return err
			}
			return runOn(cmd, lab, "client1", append([]string{"curl", "-sS"}, args...))
		},
	}
	nameFlag(cmd, &name)
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// runOn runs a command on a node with this program's terminal. Weir's own programs are found beside
// this one; they know the managers, call them as the cluster's first user, and know where the node keeps its
// data plane. curl knows the managers' CA.
func runOn(cmd *cobra.Command, lab *netlab.Lab, node string, argv []string) error {
	ns, err := lab.NS(node)
	if err != nil {
		return err
	}
	run := exec.Command(lab.Find(argv[0]), argv[1:]...)
	run.Env = append(os.Environ(), rpc.ManagerVariable+"="+lab.ManagerURLs(), rpc.ConfigVariable+"="+lab.AdminFile(),
		daemon.PinPathVariable+"="+lab.PinPath(node), "CURL_CA_BUNDLE="+lab.CAFile())
	run.Stdin, run.Stdout, run.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	if err := ns.Start(run); err != nil {
		return err
	}
	if err := run.Wait(); err != nil {
		return fmt.Errorf("%s on %s: %w", argv[0], node, err)
	}
	return nil
}

func killCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "kill NODE", Short: "Cut a node's power: its packets vanish and its programs are gone, without a word",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			lab, err := open(name)
			if err != nil {
				return err
			}
			return lab.CutPower(args[0])
		},
	}
	nameFlag(cmd, &name)
	return cmd
}

func rebootCommand() *cobra.Command {
	var name string
	keep := false
	cmd := &cobra.Command{
		Use: "reboot NODE", Short: "Have a node's links go, seen by its neighbors, and come back with its programs; also after kill",
		Example: "  weir lab reboot tor-1-1\n  weir lab reboot tor-1-1 --keep-tables",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			lab, err := open(name)
			if err != nil {
				return err
			}
			return lab.Reboot(args[0], keep)
		},
	}
	nameFlag(cmd, &name)
	cmd.Flags().BoolVar(&keep, "keep-tables", false, "a switch has its tables when it is back, as they were; else they are empty")
	return cmd
}

func cutCommand() *cobra.Command {
	var name string
	silent := false
	cmd := &cobra.Command{
		Use: "cut NODE NODE", Short: "Cut the link between two nodes of a fabric", Args: cobra.ExactArgs(2),
		Example: "  weir lab cut tor-1-1 agg-1-1",
		RunE: func(_ *cobra.Command, args []string) error {
			lab, err := open(name)
			if err != nil {
				return err
			}
			return lab.CutLink(args[0], args[1], silent)
		},
	}
	nameFlag(cmd, &name)
	cmd.Flags().BoolVar(&silent, "silent", false, "the link stays up, and its packets vanish")
	return cmd
}

func restoreCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "restore NODE NODE", Short: "Restore a link that was cut", Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			lab, err := open(name)
			if err != nil {
				return err
			}
			return lab.RestoreLink(args[0], args[1])
		},
	}
	nameFlag(cmd, &name)
	return cmd
}

func moveCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "move TENANT CLIENTHOST", Short: "Take a virtual network's workload to another host of clients, as live migration does",
		Example: "  weir lab move acme1 chost2",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			lab, err := open(name)
			if err != nil {
				return err
			}
			return migrate.Tenant(cmd.Context(), lab, args[0], args[1])
		},
	}
	nameFlag(cmd, &name)
	return cmd
}
