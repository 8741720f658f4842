package change

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/elapsed"
	"github.com/weirlb/weir/internal/events"
)

// waiting holds the flags of commands that can wait for the muxes.
type waiting struct {
	wait    bool
	timeout time.Duration
}

func (w *waiting) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.wait, "wait", false, "return when every registered mux runs the change")
	cmd.Flags().DurationVar(&w.timeout, "timeout", 30*time.Second, "how long to wait with --wait")
}

// pollTime is the time between two requests for the status.
const pollTime = 100 * time.Millisecond

// lagError says which muxes do not run a generation yet, and why.
type lagError struct {
	generation uint64
	timeout    time.Duration
	refused    bool // so that waiting is of no use
	reasons    []string
}

func (e *lagError) Error() string {
	why := fmt.Sprintf("not done after %s", e.timeout)
	if e.refused {
		why = "it is refused"
	}
	return fmt.Sprintf("wait for the muxes to run generation %d: %s: %s", e.generation, why, strings.Join(e.reasons, "; "))
}

// ExitCode is what the program ends with.
func (e *lagError) ExitCode() int { return 3 }

// forMuxes returns when every registered mux runs the generation, if the flags ask for it.
func (w *waiting) forMuxes(s *session.Session, cmd *cobra.Command, generation uint64) error {
	if !w.wait {
		return nil
	}
	client, err := s.Connect()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), w.timeout)
	defer cancel()
	lag := &lagError{generation: generation, timeout: w.timeout, reasons: []string{"the manager did not answer"}}
	ticker := time.NewTicker(pollTime)
	defer ticker.Stop()
	progress := s.Progress(cmd.ErrOrStderr())
	defer progress.Done()
	for {
		muxes, err := session.ListMuxes(ctx, client)
		switch {
		case err == nil:
			lag.reasons = lagging(muxes, generation, s.Now())
			progress.Tell("%d of %d muxes run generation %d; %s", len(muxes)-len(lag.reasons), len(muxes), generation,
				strings.Join(lag.reasons, "; "))
			if len(lag.reasons) == 0 {
				progress.Done()
				fmt.Fprintln(cmd.ErrOrStderr(), programmed(len(muxes), generation))
				return nil
			}
			if lag.refused = onlyRefusals(muxes, generation); lag.refused {
				return lag
			}
		case ctx.Err() == nil:
			lag.reasons = []string{err.Error()}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if errors.Is(cmd.Context().Err(), context.Canceled) {
				return fmt.Errorf("wait for generation %d: interrupted, the change is made all the same", generation)
			}
			return lag
		}
	}
}

func programmed(muxes int, generation uint64) string {
	switch muxes {
	case 0:
		return "no mux is registered: nothing forwards packets yet, start weir-mux"
	case 1:
		return fmt.Sprintf("the mux runs generation %d", generation)
	}
	return fmt.Sprintf("all %d muxes run generation %d", muxes, generation)
}

// lagging says why each mux that does not run the generation yet does not.
func lagging(muxes []*weirv1.Node, generation uint64, now time.Time) []string {
	var reasons []string
	for _, mux := range muxes {
		if mux.GetStatus().GetGeneration() < generation {
			reasons = append(reasons, fmt.Sprintf("%s %s", mux.GetName(), lagReason(mux.GetStatus(), now)))
		}
	}
	slices.Sort(reasons)
	return reasons
}

// onlyRefusals says whether every connected mux runs the generation or has refused it, or a later one,
// and one of them has: then none will run it by itself.
func onlyRefusals(muxes []*weirv1.Node, generation uint64) bool {
	refused := false
	for _, mux := range muxes {
		status := mux.GetStatus()
		switch {
		case status.GetGeneration() >= generation:
		case status.GetRejection().GetGeneration() >= generation:
			refused = true
		case status.GetConnected():
			return false
		}
	}
	return refused
}

func lagReason(status *weirv1.NodeStatus, now time.Time) string {
	runs := fmt.Sprintf("it runs generation %d", status.GetGeneration())
	if status.GetGeneration() == 0 {
		runs = "it runs none"
	}
	refused := ""
	if r := status.GetRejection(); r.GetReason() != "" {
		refused = fmt.Sprintf("refused generation %d (%s), ", r.GetGeneration(), events.Printable(r.GetReason()))
	}
	switch {
	case !status.GetConnected(): // for a moment, if it refuses a snapshot: then it asks for another
		return fmt.Sprintf("is disconnected, last seen %s, %s%s", elapsed.Ago(status.GetLastSeen(), now), refused, runs)
	case refused != "":
		return refused + runs
	}
	return "is connected but slow, " + runs
}
