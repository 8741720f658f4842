package diagnose

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/wire"
)

// CaptureCommand returns the command capture.
func CaptureCommand(s *session.Session) *cobra.Command {
	request := &weirv1.CaptureRequest{Filter: &weirv1.CaptureFilter{}}
	var duration time.Duration
	var file string
	cmd := &cobra.Command{
		Use:   "capture --mux NAME -w FILE",
		Short: "Copy packets on their way into and out of a mux, with what became of them",
		Long: `Copy packets on their way into and out of a mux, as a pcapng file with two interfaces,
in and out, and with what became of each packet as its comment. Forwarding goes on
meanwhile. Only packets that fit all filters are copied; a packet that passed is
copied twice, as it came and as it left.

It ends after --count copies or --duration, or when it is interrupted. Standard error
tells how many packets there were, and how many were lost because they came too fast.`,
		Example: `  weir capture --mux mux1 --vip 203.0.113.10 -w shop.pcapng
  weir capture --mux mux1 --verdict drop -w - | tshark -r -`,
		Args:              session.Arguments(0, 0, ""),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case request.GetMux() == "":
				return session.NewUsageError(cmd, errors.New("--mux NAME is missing"))
			case file == "":
				return session.NewUsageError(cmd, errors.New("-w FILE is missing: name a file, or - for standard output"))
			}
			request.Duration = durationpb.New(duration)
			return capture(s, cmd, request, file)
		},
	}
	flags, filter := cmd.Flags(), request.GetFilter()
	flags.StringVar(&request.Mux, "mux", "", "`name` of the mux")
	flags.StringVarP(&file, "write", "w", "", "`file` to write, - for standard output")
	flags.StringVar(&filter.Client, "client", "", "only packets from this `address` or prefix")
	flags.Uint32Var(&filter.ClientPort, "client-port", 0, "only packets from this `port`")
	flags.StringVar(&filter.Vip, "vip", "", "only packets to this `address`")
	flags.Uint32Var(&filter.Port, "port", 0, "only packets to this `port`")
	flags.StringVar(&filter.Protocol, "protocol", "", "only packets of this `protocol`: tcp, udp or icmp")
	flags.StringVar(&filter.Verdict, "verdict", "", "only packets of this `verdict`, or of those that begin so: drop")
	flags.Uint32Var(&request.Count, "count", wire.DefaultCaptureCount, "end after so many copies")
	flags.DurationVar(&duration, "duration", wire.DefaultCaptureDuration, "end after so long")
	flags.Uint32Var(&request.SnapLength, "snap-length", wire.DefaultCaptureSnapLength, "`bytes` of each packet at most")
	verdicts := cobra.FixedCompletions([]string{"pass_", "forward_", "drop_"},
		cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace)
	session.CompleteFlag(cmd, "protocol", "tcp", "udp", "icmp")
	cmd.RegisterFlagCompletionFunc("mux", s.CompleteMux) //nolint:errcheck // the flag stands above
	cmd.RegisterFlagCompletionFunc("verdict", verdicts)  //nolint:errcheck // the flag stands above
	return cmd
}

func capture(s *session.Session, cmd *cobra.Command, request *weirv1.CaptureRequest, path string) error {
	client, err := s.Connect()
	if err != nil {
		return err
	}
	defer client.Close()
	t := &pcapWriter{open: func() (io.WriteCloser, error) { return openPcap(cmd, path) }, mux: request.GetMux()}
	if path == "-" { // who reads it may write to the same terminal
		s.HoldProgress()
	}
	progress := s.Progress(cmd.ErrOrStderr())
	err = client.EachCapture(cmd.Context(), request, func(r *weirv1.CaptureResponse) error {
		progress.Tell("capturing on %s: %d packets in, %d out", request.GetMux(), t.in, t.out)
		return t.add(r)
	})
	progress.Done()
	if errors.Is(cmd.Context().Err(), context.Canceled) {
		err = nil // interrupted: what was captured until then is whole
	}
	if closing := t.close(); err == nil {
		err = closing // else it would tell the same once more
	}
	if err != nil {
		return fmt.Errorf("capture on %s: %w", request.GetMux(), err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "captured %d packets in and %d out, lost %d\n", t.in, t.out, t.lost)
	return nil
}

// openPcap opens what a capture is written to.
func openPcap(cmd *cobra.Command, path string) (io.WriteCloser, error) {
	if path != "-" {
		file, err := os.Create(path)
		if err != nil {
			return nil, err // not a file that is nil
		}
		return file, nil
	}
	out := cmd.OutOrStdout()
	if file, ok := out.(*os.File); ok && term.IsTerminal(file.Fd()) {
		return nil, errors.New("standard output is a terminal: give a file to -w, or pipe it into tshark -r -")
	}
	return standardOutput{out}, nil
}

// standardOutput is not ours to close.
type standardOutput struct{ io.Writer }

func (standardOutput) Close() error { return nil }
