package change

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/rpc"
)

// BackendCommand returns the command backend.
func BackendCommand(s *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backend",
		Short: "Write single backends of a VIP, in the name of a field manager",
		Long: `Write single backends of a VIP, in the name of a field manager: a program that adds and
removes backends by itself, as an autoscaler. They are its own: who applies the VIP leaves
them out and keeps them, and no other program changes or removes them, unless by --force.

PORT is that of the endpoint, which must be there: "80", "53/udp", or "all".`,
	}
	session.Group(cmd)
	cmd.AddCommand(setBackendCommand(s), removeBackendCommand(s))
	return cmd
}

// backendChange holds the flags of both.
type backendChange struct {
	request weirv1.PatchBackendsRequest
	wait    waiting
}

func (b *backendChange) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&b.request.FieldManager, "field-manager", "", "`name` of the program in whose name they are written (required)")
	flags.BoolVar(&b.request.Force, "force", false, "take backends over from other field managers, and from who writes the VIP")
	flags.BoolVar(&b.request.DryRun, "dry-run", false, "say what would change, and change nothing")
	b.wait.flags(cmd)
}

func setBackendCommand(s *session.Session) *cobra.Command {
	var b backendChange
	var weight uint32
	cmd := &cobra.Command{
		Use:   "set VIP PORT ADDRESS[:PORT]@HOST...",
		Short: "Add backends to an endpoint, or change them",
		Long: `Add backends to an endpoint, or change those that are there by the same address and port.
With --replace the field manager has no others there: what it had besides is removed.`,
		Example: `  weir backend set web 80 10.3.1.11:8080@host1 10.3.2.11:8080@host2 --field-manager autoscaler
  weir backend set web 80 10.3.1.11:8080@host1 --weight 0 --field-manager autoscaler`,
		Args:              session.Arguments(2, session.MaxNames, "VIP PORT ADDRESS[:PORT]@HOST..."),
		ValidArgsFunction: s.Complete(1, session.VIPNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 && !b.request.GetReplace() {
				return session.NewUsageError(cmd, errors.New("name an ADDRESS[:PORT]@HOST, or say --replace, by which none is left"))
			}
			for _, text := range args[2:] {
				at, host, ok := strings.Cut(text, "@")
				if !ok || host == "" {
					return session.NewUsageError(cmd, fmt.Errorf("%.64q must be ADDRESS[:PORT]@HOST", text))
				}
				backend, err := readBackend(at)
				if err != nil {
					return session.NewUsageError(cmd, err)
				}
				backend.Host, backend.Weight = host, proto.Uint32(weight)
				b.request.Set = append(b.request.Set, backend)
			}
			return b.run(s, cmd, args[0], args[1])
		},
	}
	cmd.Flags().Uint32Var(&weight, "weight", 1, "share of new connections; 0 drains")
	cmd.Flags().BoolVar(&b.request.Replace, "replace", false, "remove the field manager's other backends of the endpoint")
	cmd.Flags().BoolVar(&b.request.Strict, "strict", false, "refuse hosts that have not joined, instead of waiting for them")
	b.flags(cmd)
	return cmd
}

func removeBackendCommand(s *session.Session) *cobra.Command {
	var b backendChange
	cmd := &cobra.Command{
		Use:               "remove VIP PORT ADDRESS[:PORT]...",
		Short:             "Remove backends from an endpoint; those that it does not have are passed over",
		Example:           "  weir backend remove web 80 10.3.1.11:8080 --field-manager autoscaler",
		Args:              session.Arguments(3, session.MaxNames, "VIP PORT ADDRESS[:PORT]..."),
		ValidArgsFunction: s.Complete(1, session.VIPNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, text := range args[2:] {
				backend, err := readBackend(text)
				if err != nil {
					return session.NewUsageError(cmd, err)
				}
				b.request.Remove = append(b.request.Remove, backend)
			}
			return b.run(s, cmd, args[0], args[1])
		},
	}
	b.flags(cmd)
	return cmd
}

// readBackend reads "10.3.1.11:8080", "[fd00::1]:8080", or an address alone.
func readBackend(text string) (*weirv1.Backend, error) {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return &weirv1.Backend{Address: at.Addr().String(), Port: uint32(at.Port())}, nil
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return nil, fmt.Errorf("%.64q must be an address, with a port or without: [ADDRESS]:PORT for IPv6", text)
	}
	return &weirv1.Backend{Address: address.String()}, nil
}

func (b *backendChange) run(s *session.Session, cmd *cobra.Command, vip, port string) error {
	r := &b.request
	if r.GetFieldManager() == "" {
		return session.NewUsageError(cmd, errors.New("--field-manager NAME is missing: the program in whose name the backends are written"))
	}
	number, protocol, _ := strings.Cut(port, "/")
	if number != "all" {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil || n == 0 {
			return session.NewUsageError(cmd, fmt.Errorf(`%.64q must be the endpoint's port: "80", "53/udp", or "all"`, port))
		}
		r.Port = uint32(n)
	}
	r.Name, r.Protocol = vip, strings.ToUpper(protocol)
	return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
		done, err := client.PatchBackends(ctx, r)
		if err != nil {
			return fmt.Errorf("write backends of %s: %w", vip, err)
		}
		w, is := cmd.OutOrStdout(), "are"
		if r.GetDryRun() {
			is = "would be"
		}
		fmt.Fprintf(w, "vip %s: %d backends %s added, %d changed, %d removed; %d of %s\n",
			vip, done.GetAdded(), is, done.GetUpdated(), done.GetRemoved(), done.GetManaged(), r.GetFieldManager())
		printPending(w, done.GetPending())
		if r.GetDryRun() {
			return nil
		}
		return b.wait.forMuxes(s, cmd, done.GetGeneration())
	})
}
