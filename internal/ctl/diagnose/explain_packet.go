package diagnose

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/output"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/rpc"
)

// shown is a packet that programs are shown: a mux's, or those of all on its way.
type shown struct {
	mux    string
	hops   bool
	packet described
	pcap   string
	number int
}

func (p *shown) addFlags(s *session.Session, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&p.mux, "mux", "",
		"run the packet through the program of this `mux`, which neither sends nor counts it")
	flags.BoolVar(&p.hops, "hops", false, "run the packet through all programs on its way, also that of the hosts, and an answer of the workload")
	flags.StringVar(&p.packet.flags, "flags", "syn", "with --mux or --hops: TCP `flags` of the packet, such as ack or syn|ack")
	flags.Int64Var(&p.packet.tsecr, "tsecr", -1,
		"with --mux or --hops: timestamp that the TCP segment echoes; it names the backend in a cookie (default no timestamps)")
	flags.IntVar(&p.packet.size, "size", 0, "with --mux or --hops: `bytes` of the IP packet (default its headers)")
	flags.StringVar(&p.pcap, "pcap", "",
		"with --mux or --hops: take the packet from this `file`, pcap or pcapng, instead of describing it")
	flags.IntVar(&p.number, "packet", 1, "with --pcap: `number` of the packet in the file, from 1 on")
	cmd.RegisterFlagCompletionFunc("mux", s.CompleteMux) //nolint:errcheck // the flag stands above
	session.CompleteFlag(cmd, "flags", "syn", "ack", "syn|ack", "fin|ack", "rst")
}

// runs says whether programs are to run.
func (p *shown) runs() bool { return p.mux != "" || p.hops }

// check refuses flags that do not belong together.
func (p *shown) check(cmd *cobra.Command, args []string) error {
	if !p.runs() {
		for _, name := range []string{"flags", "tsecr", "size", "pcap", "packet"} {
			if cmd.Flags().Changed(name) {
				return fmt.Errorf("--%s has no effect without --mux or --hops", name)
			}
		}
	}
	if p.pcap == "" {
		if cmd.Flags().Changed("packet") {
			return errors.New("--packet has no effect without --pcap")
		}
		if len(args) < 2 {
			return errors.New("SOURCE:PORT DESTINATION:PORT is missing")
		}
		return nil
	}
	if p.number < 1 {
		return fmt.Errorf("read --packet: must be 1 or more, is %d", p.number)
	}
	for _, name := range []string{"flags", "tsecr", "size", "protocol", "token"} {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s describes a packet, and --pcap takes one from a file: use one of them", name)
		}
	}
	if len(args) > 0 {
		return fmt.Errorf("%q describes a packet, and --pcap takes one from a file: use one of them", args[0])
	}
	return nil
}

// frame is the packet's, by description or from the file.
func (p *shown) frame(protocol string, args []string) ([]byte, error) {
	if p.pcap != "" {
		return frameOfFile(p.pcap, p.number)
	}
	flow, err := parseFlow(protocol, args[0], args[1])
	if err != nil {
		return nil, err
	}
	return p.packet.frame(flow)
}

func explainPacket(s *session.Session, cmd *cobra.Command, p *shown, protocol string, args []string) error {
	frame, err := p.frame(protocol, args)
	if err != nil {
		return session.NewUsageError(cmd, err)
	}
	if p.hops {
		return explainPath(s, cmd, p.mux, frame)
	}
	return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
		response, err := client.ExplainPacket(ctx, &weirv1.ExplainPacketRequest{Mux: p.mux, Frame: frame})
		if err != nil {
			return fmt.Errorf("explain a packet on %s: %w", p.mux, err)
		}
		explanation := response.GetExplanation()
		return s.Output.Print(cmd.OutOrStdout(), output.Message{Message: explanation}, func(w io.Writer) error {
			return writeExplanation(w, p.mux, frame, explanation)
		})
	})
}

func writeExplanation(w io.Writer, mux string, frame []byte, e *weirv1.PacketExplanation) error {
	fmt.Fprintf(w, "%s, by the program of %s, generation %d\n", describeFrame(frame), mux, e.GetGeneration())
	for i, step := range e.GetSteps() {
		fmt.Fprintf(w, "  %d. %s\n", i+1, step)
	}
	fmt.Fprintln(w)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("Verdict", "%s (%s)", e.GetVerdict(), e.GetAction())
	if e.GetLayer() != "" {
		line("Layer", "%s", e.GetLayer())
	}
	if e.GetHash() != 0 {
		line("Hash", "0x%08x", e.GetHash())
		line("Bucket", "%d of %d", e.GetBucket(), e.GetBuckets())
	}
	if e.GetSlot() != 0 {
		line("Slot", "%d", e.GetSlot())
	}
	if e.GetPreviousSlot() != 0 {
		line("Previous", "slot %d", e.GetPreviousSlot())
	}
	if e.GetBackend() != "" {
		line("Backend", "%s", table.HostPort(e.GetBackend(), e.GetBackendPort()))
	}
	if token, joins := joinedBy(frame); joins {
		line("Joins", "%s: the host that has the connection gets it from that of the tunnel", token.String())
	}
	if e.GetWorkload() != "" {
		line("Workload", "%s", e.GetWorkload())
	}
	if e.GetTunnel() != "" {
		line("Tunnel", "%s", e.GetTunnel())
	}
	line("Out", "%d bytes, of %d that came in", len(e.GetFrame()), len(frame))
	_, err := io.WriteString(w, hex.Dump(e.GetFrame()))
	return err
}
