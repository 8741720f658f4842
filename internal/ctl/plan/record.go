package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/plan"
	"github.com/weirlb/weir/internal/planinput"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/traffic"
)

// sampleTime is the longest time between two requests of an interval: what a mux forwarded since its last report is
// lost when it is started anew.
const sampleTime = 10 * time.Second

// reportTime bounds the wait for two reports of a mux. They come every two seconds.
const reportTime = 10 * time.Second

// lastTime bounds the last request, once the user ends the recording.
const lastTime = 2 * time.Second

// Bounds of the length of an interval.
const (
	shortestInterval = time.Second
	longestInterval  = 24 * time.Hour
)

func recordCommand(s *session.Session) *cobra.Command {
	var input planinput.Input
	var write string
	var every time.Duration
	var intervals int
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Record the traffic of a running cluster as a trace",
		Long: `Record as a trace what the muxes of a running cluster forward to each VIP, on average over each
interval, and in which racks its backends are. Racks are found by the prefixes that the
fabric gives them. Ctrl-C ends it: what is recorded is kept, the last interval shortened.

From which racks packets come, and what switches bring, agents estimate from samples, every ten
seconds, by the racks of the fabric that the managers keep: without one all traffic is external.
Not counted are replies, and connections that go from host to host.
Backends with a weight of 0 are left out, other weights are not told.`,
		Example: `  weir plan record --fabric east.yaml --write now.csv
  weir plan record --fabric east.yaml --every 10m --intervals 144 --write day.csv`,
		Args: session.Arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !cmd.Flags().Changed("fabric") || write == "":
				return session.NewUsageError(cmd, errors.New("--fabric and --write have to be given"))
			case every < shortestInterval || every > longestInterval:
				return session.NewUsageError(cmd, fmt.Errorf("--every %s is not from %s to %s", every, shortestInterval, longestInterval))
			case intervals < 1 || intervals > planinput.MaxIntervals:
				return session.NewUsageError(cmd, fmt.Errorf("--intervals %d is not from 1 to %d", intervals, planinput.MaxIntervals))
			}
			network, err := readFabric(cmd, &input)
			if err != nil {
				return err
			}
			client, err := s.Connect()
			if err != nil {
				return err
			}
			defer client.Close()
			r := recorder{
				client: client, fabric: network, every: every, patience: reportTime, intervals: intervals, log: cmd.ErrOrStderr(),
			}
			recorded, err := r.record(cmd.Context(), write)
			if len(recorded) > 0 {
				err = errors.Join(err, s.Output.Print(cmd.OutOrStdout(), recorded, trafficTable(recorded).Write))
			}
			return err
		},
	}
	input.FabricFlag(cmd)
	cmd.Flags().StringVar(&write, "write", "", "`file` to write the trace to")
	cmd.Flags().DurationVar(&every, "every", 10*time.Minute, "`duration` of an interval")
	cmd.Flags().IntVar(&intervals, "intervals", 1, "number of intervals")
	s.Output.AddFlag(cmd)
	return cmd
}

// recorder records a trace.
type recorder struct {
	client    *rpc.Client
	fabric    *fabric.Fabric
	every     time.Duration
	patience  time.Duration // with muxes that report late
	intervals int
	log       io.Writer // for people

	recording *planinput.Recording
	vips      []*weirv1.VIP // as listed last
	trouble   error         // of the newest request
}

// errNothing is why there is no file.
var errNothing = errors.New("nothing is recorded")

// record writes the file once it has all intervals, or has those before an interruption or a failure. It returns what
// the file has. Without an interval there is no file.
func (r *recorder) record(ctx context.Context, file string) (recorded []plan.TrafficSummary, err error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	var stopped error
	err = planinput.WriteWhole(file, func(to io.Writer) (err error) {
		fmt.Fprintf(r.log, "recording %d of %s; Ctrl-C ends it and keeps what there is\n", r.intervals, r.every)
		trace := traffic.NewWriter(to, planinput.RackNames(r.fabric))
		if err := comment(trace, recordingNotes...); err != nil {
			return err
		}
		recorded, stopped, err = r.write(ctx, trace)
		if len(recorded) == 0 {
			return cmp.Or(err, errNothing)
		}
		return err
	})
	if errors.Is(err, errNothing) {
		return nil, cmp.Or(stopped, fmt.Errorf("%w: no mux reported twice before the end", errNothing))
	}
	return recorded, errors.Join(err, stopped)
}

// write writes intervals until all are recorded, ctx ends, or stopped says why there are no more.
func (r *recorder) write(ctx context.Context, trace *traffic.Writer) (recorded []plan.TrafficSummary, stopped, err error) {
	for number := range r.intervals {
		if stopped = r.wait(ctx); stopped != nil || r.isEmpty() {
			break
		}
		since, length := r.recording.Span()
		interval, left, wrong := r.recording.Next(number, r.vips)
		if wrong != nil {
			return recorded, wrong, nil
		}
		r.tell(number, left)
		note := fmt.Sprintf("interval %d: from %s, %s", number, since.UTC().Format(time.RFC3339), length.Round(time.Second))
		if err := errors.Join(comment(trace, note), trace.Write(interval)); err != nil {
			return recorded, nil, err
		}
		recorded = append(recorded, plan.Summarize(interval))
		fmt.Fprintf(r.log, "%s, %d VIPs, %s\n", note, len(interval.Demands), planinput.FormatBits(interval.Rate()))
		if ctx.Err() != nil {
			break
		}
	}
	return recorded, stopped, nil
}

// recordingNotes are comments at the beginning of the file.
var recordingNotes = []string{
	"Recorded by weir plan record: what came to each VIP, on average over each interval, as muxes count and agents sample it.",
	"Racks of clients are those of the fabric that the managers keep. Connections from host to host are not counted.",
}

func comment(trace *traffic.Writer, lines ...string) (err error) {
	for _, line := range lines {
		err = errors.Join(err, trace.Comment(line))
	}
	return err
}

// begin observes the first reports, and refuses a fabric that lacks racks of backends.
func (r *recorder) begin(ctx context.Context) (err error) {
	if r.recording, err = planinput.NewRecording(r.fabric); err != nil {
		return err
	}
	if err := errors.Join(r.observe(ctx), r.listVIPs(ctx)); err != nil {
		return err
	}
	if !r.recording.Reported() {
		return errors.New("no mux tells its counters: see weir get nodes --role mux; a tenant's user does not get them")
	}
	return r.recording.Check(r.vips)
}

// wait observes reports until the interval is over. A manager that is away is asked again. When ctx ends, it observes
// once more.
func (r *recorder) wait(ctx context.Context) error {
	end := time.Now().Add(r.every)
	for {
		left := time.Until(end)
		if left <= 0 {
			break
		}
		if !sleep(ctx, min(left, sampleTime)) {
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTime)
			defer cancel()
			r.try(r.observe(last))
			return nil
		}
		r.try(r.observe(ctx))
	}
	for late := end.Add(r.patience); r.isEmpty(); {
		if time.Now().After(late) {
			return errors.Join(errors.New("no mux reported twice in the interval: see weir get nodes --role mux"), r.trouble)
		}
		if !sleep(ctx, r.patience/20) {
			return nil
		}
		r.try(r.observe(ctx))
	}
	r.try(r.listVIPs(ctx)) // those of the beginning are used else
	return nil
}

func (r *recorder) isEmpty() bool {
	_, length := r.recording.Span()
	return length == 0
}

// sleep returns false if ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// try says what is wrong with a request, once.
func (r *recorder) try(err error) {
	if err != nil && r.trouble == nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintf(r.log, "%v: trying again\n", err)
	}
	r.trouble = err
}

func (r *recorder) observe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, session.CallTime)
	defer cancel()
	muxes, err := session.ListMuxes(ctx, r.client)
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	r.recording.Observe(muxes)
	return r.observeTraffic(ctx)
}

// observeTraffic reads what agents estimate.
func (r *recorder) observeTraffic(ctx context.Context) error {
	stream, err := r.client.ReadTraffic(ctx, &weirv1.ReadTrafficRequest{})
	if err != nil {
		return fmt.Errorf("read traffic: %w", err)
	}
	defer stream.Close()
	var read []*weirv1.ReadTrafficResponse
	for stream.Receive() {
		read = append(read, stream.Msg())
	}
	if err := stream.Err(); err != nil {
		return fmt.Errorf("read traffic: %w", err)
	}
	r.recording.ObserveTraffic(read)
	return nil
}

func (r *recorder) listVIPs(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, session.CallTime)
	defer cancel()
	vips, err := session.ListVIPs(ctx, r.client, &weirv1.ListVIPsRequest{})
	if err != nil {
		return fmt.Errorf("list vips: %w", err)
	}
	r.vips = vips
	return nil
}

// mostShown is how many things are told that an interval leaves out.
const mostShown = 10

func (r *recorder) tell(number int, left []string) {
	for _, what := range left[:min(len(left), mostShown)] {
		fmt.Fprintf(r.log, "interval %d leaves out %s\n", number, what)
	}
	if more := len(left) - mostShown; more > 0 {
		fmt.Fprintf(r.log, "interval %d leaves out %d things more\n", number, more)
	}
}
