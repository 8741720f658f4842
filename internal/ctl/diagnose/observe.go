package diagnose

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/output"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/wire"
)

// ObserveCommand returns the command observe.
func ObserveCommand(s *session.Session) *cobra.Command {
	request := &weirv1.ObserveRequest{Filter: &weirv1.CaptureFilter{}}
	var duration time.Duration
	cmd := &cobra.Command{
		Use:   "observe",
		Short: "Watch what comes to the muxes, and what becomes of it",
		Long: `Watch what comes to the muxes, and what becomes of it: a line for each packet, or with
--connections for the first packet of each connection at each mux, and for those whose
verdict differs from the one before. Forwarding goes on meanwhile.

A mux copies packets for one observation or capture at a time. What comes too fast is
lost, and counted. It ends after --count lines or --duration, or when it is interrupted.`,
		Example: `  weir observe --vip 203.0.113.10 --connections
  weir observe --verdict drop --duration 1m -o json`,
		Args:              session.Arguments(0, 0, ""),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			request.Duration = durationpb.New(duration)
			return observeMuxes(s, cmd, request)
		},
	}
	flags, filter := cmd.Flags(), request.GetFilter()
	flags.StringArrayVar(&request.Muxes, "mux", nil, "only this mux, by `name`; may be repeated")
	flags.StringVar(&filter.Client, "client", "", "only packets from this `address` or prefix")
	flags.Uint32Var(&filter.ClientPort, "client-port", 0, "only packets from this `port`")
	flags.StringVar(&filter.Vip, "vip", "", "only packets to this `address`")
	flags.Uint32Var(&filter.Port, "port", 0, "only packets to this `port`")
	flags.StringVar(&filter.Protocol, "protocol", "", "only packets of this `protocol`: tcp, udp or icmp")
	flags.StringVar(&filter.Verdict, "verdict", "", "only packets of this `verdict`, or of those that begin so: drop")
	flags.BoolVar(&request.Connections, "connections", false, "tell connections instead of packets")
	flags.Uint32Var(&request.Count, "count", wire.DefaultObserveCount, "end after so many lines")
	flags.DurationVar(&duration, "duration", wire.DefaultCaptureDuration, "end after so long")
	s.Output.AddFlag(cmd)
	verdicts := cobra.FixedCompletions([]string{"pass_", "forward_", "drop_"},
		cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace)
	session.CompleteFlag(cmd, "protocol", "tcp", "udp", "icmp")
	cmd.RegisterFlagCompletionFunc("mux", s.CompleteMux) //nolint:errcheck // the flag stands above
	cmd.RegisterFlagCompletionFunc("verdict", verdicts)  //nolint:errcheck // the flag stands above
	return cmd
}

// observed counts what an observation told.
type observed struct {
	packets int
	muxes   map[string]bool // that were observed, and whether they are still
	lost    uint64
	reasons []string // why muxes are observed no more, or never were
}

// failed says whether no mux was observed to the end, and none has told anything: a filter is refused after the task is taken.
func (o *observed) failed() bool {
	for _, running := range o.muxes {
		if running {
			return false
		}
	}
	return o.packets == 0 && len(o.reasons) > 0
}

func observeMuxes(s *session.Session, cmd *cobra.Command, request *weirv1.ObserveRequest) error {
	client, err := s.Connect()
	if err != nil {
		return err
	}
	defer client.Close()
	o := observed{muxes: map[string]bool{}}
	err = client.EachObserved(cmd.Context(), request, func(r *weirv1.ObserveResponse) error {
		return o.tell(s.Output, cmd.OutOrStdout(), cmd.ErrOrStderr(), r)
	})
	if errors.Is(cmd.Context().Err(), context.Canceled) {
		err = nil // interrupted
	}
	if err == nil && o.failed() {
		err = errors.New(strings.Join(o.reasons, "; "))
	}
	if err != nil {
		return fmt.Errorf("observe: %w", err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "observed %d packets on %d muxes, lost %d\n", o.packets, len(o.muxes), o.lost)
	return nil
}

// tell writes what came: packets as the result, and what is to be known of muxes beside it.
func (o *observed) tell(format output.Format, out, messages io.Writer, r *weirv1.ObserveResponse) error {
	o.lost = max(o.lost, r.GetLost())
	for _, mux := range r.GetMuxes() {
		if mux.GetReason() == "" {
			o.muxes[mux.GetName()] = true
			continue
		}
		if o.muxes[mux.GetName()] {
			o.muxes[mux.GetName()] = false
		}
		line := mux.GetReason()
		if name := "mux " + mux.GetName(); !strings.HasPrefix(line, name) { // some reasons begin with it
			line = name + ": " + line
		}
		o.reasons = append(o.reasons, line)
		fmt.Fprintln(messages, line)
	}
	for _, p := range r.GetPackets() {
		o.packets++
		err := format.PrintLine(out, p, func(w io.Writer) { fmt.Fprintln(w, observedLine(p)) })
		if err != nil {
			return err
		}
	}
	return nil
}

// observedLine is "12:00:01.123456 mux1 forward_syn TCP 198.51.100.7:40000 > 203.0.113.10:80 SYN, 74 bytes: bucket 5".
func observedLine(p *weirv1.ObservedPacket) string {
	end := func(address string, port uint32) string {
		if port == 0 {
			return address
		}
		return net.JoinHostPort(address, strconv.FormatUint(uint64(port), 10))
	}
	text := fmt.Sprintf("%s %s %s", p.GetTime().AsTime().Local().Format("15:04:05.000000"), p.GetMux(), p.GetVerdict())
	if p.GetSourceAddress() != "" {
		text += fmt.Sprintf(" %s %s > %s", p.GetProtocol(), end(p.GetSourceAddress(), p.GetSourcePort()), end(p.GetDestinationAddress(), p.GetDestinationPort()))
	}
	if p.GetTcpFlags() != "" {
		text += " " + p.GetTcpFlags()
	}
	text += fmt.Sprintf(", %d bytes", p.GetLength())
	if p.GetComment() != "" {
		text += ": " + p.GetComment()
	}
	return text
}
