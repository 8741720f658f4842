package diagnose

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/output"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

const (
	explainHelp = `Say which backend a new flow gets, and why, from the tables that the muxes run.
SOURCE is the client, DESTINATION the VIP. With --network, both are addresses of that
virtual network. With --token, the flow is a subflow of Multipath TCP, and its SYN joins
the connection that has the token.

With --mux, run a packet through the program that this mux runs, with its tables, and
say what became of it: the verdict, what chose the backend, and the bytes that would
leave. The packet is described, or taken from a file. Nothing is sent, counted or
remembered.

With --hops, go on from the mux to the host, and through each program on the way: what
the workload gets, and what becomes of its answer. --mux names the mux to begin at.`
	explainExamples = `  weir explain 198.51.100.7:40000 203.0.113.10:80
  weir explain --protocol udp '[2001:db8::7]:5353' '[2001:db8:113::10]:53'
  weir explain --network prod 192.168.0.5:40000 10.99.0.1:80
  weir explain --token 0x1f5a2c07 198.51.100.7:40000 203.0.113.10:80
  weir explain --mux mux1 198.51.100.7:40000 203.0.113.10:80 --flags ack --tsecr 16385
  weir explain --mux mux1 --pcap broken.pcapng --packet 3
  weir explain --hops 198.51.100.7:40000 203.0.113.10:80`
)

// ExplainCommand returns the command explain.
func ExplainCommand(s *session.Session) *cobra.Command {
	protocol, network := "tcp", ""
	var token token
	var packet shown
	cmd := &cobra.Command{
		Use:               "explain SOURCE:PORT DESTINATION:PORT",
		Short:             "Say which backend a flow gets, and why",
		Long:              explainHelp,
		Example:           explainExamples,
		Args:              session.Arguments(0, 2, "SOURCE:PORT DESTINATION:PORT"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := packet.check(cmd, args); err != nil {
				return session.NewUsageError(cmd, err)
			}
			if packet.runs() {
				if network != "" {
					return session.NewUsageError(cmd, errors.New("--network is of flows: it can't be used with --mux or --hops"))
				}
				packet.packet.token = token
				return explainPacket(s, cmd, &packet, protocol, args)
			}
			flow, err := parseFlow(protocol, args[0], args[1])
			if err != nil {
				return session.NewUsageError(cmd, err)
			}
			return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
				response, err := client.Explain(ctx, explainRequest(flow, network, token))
				if err != nil {
					return fmt.Errorf("explain %s: %w", flow, err)
				}
				return s.Output.Print(cmd.OutOrStdout(), output.Message{Message: response}, func(w io.Writer) error {
					return explain(w, flow, response)
				})
			})
		},
	}
	cmd.Flags().StringVar(&protocol, "protocol", protocol, "`protocol` of the flow: tcp or udp")
	session.CompleteFlag(cmd, "protocol", "tcp", "udp")
	cmd.Flags().StringVar(&network, "network", "", "`name` of the virtual network that the flow is in")
	cmd.Flags().Var(&token, "token", "`token` of the connection of Multipath TCP that a SYN joins, such as 0x1f5a2c07")
	packet.addFlags(s, cmd)
	s.Output.AddFlag(cmd)
	return cmd
}

func explainRequest(flow model.Flow, network string, of token) *weirv1.ExplainRequest {
	return &weirv1.ExplainRequest{
		Protocol:      flow.Protocol.String(),
		SourceAddress: flow.Source.Addr().String(), SourcePort: uint32(flow.Source.Port()),
		DestinationAddress: flow.Destination.Addr().String(), DestinationPort: uint32(flow.Destination.Port()),
		Network: network, MultipathToken: uint32(of),
	}
}

// token is a flag's, of a connection of Multipath TCP; 0: none.
type token uint32

func (t *token) String() string {
	if *t == 0 {
		return ""
	}
	return fmt.Sprintf("0x%08x", uint32(*t))
}

// Set reads it as captures and kernels write it: in hexadecimal, or as a number.
func (t *token) Set(text string) error {
	n, err := strconv.ParseUint(text, 0, 32)
	if err != nil || n == 0 {
		return fmt.Errorf("must be of 32 bits and not 0, such as 0x1f5a2c07, is %q", text)
	}
	*t = token(n)
	return nil
}

// Type is what help says.
func (t *token) Type() string { return "token" }

func parseFlow(protocol, source, destination string) (model.Flow, error) {
	var flow model.Flow
	var err error
	if flow.Protocol, err = model.ParseProtocol(protocol); err != nil {
		return flow, fmt.Errorf("read --protocol: %w", err)
	}
	if flow.Source, err = parseAddrPort("source", source); err != nil {
		return flow, err
	}
	if flow.Destination, err = parseAddrPort("destination", destination); err != nil {
		return flow, err
	}
	if flow.Source.Addr().Is4() != flow.Destination.Addr().Is4() {
		return flow, fmt.Errorf("read the flow: %s and %s are of different families", source, destination)
	}
	return flow, nil
}

func parseAddrPort(what, s string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return a, fmt.Errorf("read the %s: must be ADDRESS:PORT or [ADDRESS]:PORT, is %q", what, s)
	}
	return a, nil
}

func explain(w io.Writer, flow model.Flow, r *weirv1.ExplainResponse) error {
	fmt.Fprintf(w, "%s, by generation %d\n", flow, r.GetGeneration())
	for i, step := range r.GetSteps() {
		fmt.Fprintf(w, "  %d. %s\n", i+1, step)
	}
	b := r.GetBackend()
	if b == nil {
		fmt.Fprintln(w, "→ dropped: no backend")
		return nil
	}
	if r.GetSlot() == 0 && r.GetHolder() == "" && len(r.GetHomes()) == 0 { // backends have slots, workloads that leave have none
		_, err := fmt.Fprintf(w, "→ workload %s on host %s, if it has such a connection\n", b.GetAddress(), b.GetHost())
		return err
	}
	if r.GetHolder() != "" {
		_, err := fmt.Fprintf(w, "→ host %s, which has the connection\n", r.GetHolder())
		return err
	}
	if len(r.GetHomes()) > 0 {
		_, err := fmt.Fprintf(w, "→ host %s, then the one that has the connection, which %s knows\n", b.GetHost(), strings.Join(r.GetHomes(), " or "))
		return err
	}
	_, err := fmt.Fprintf(w, "→ backend %s on host %s (slot %d, weight %d)\n",
		table.HostPort(b.GetAddress(), b.GetPort()), b.GetHost(), r.GetSlot(), b.GetWeight())
	return err
}
