package diagnose

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/output"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/rpc"
)

// explainPath shows a frame to a mux, or any if that is empty, and to the hosts that it comes to.
func explainPath(s *session.Session, cmd *cobra.Command, mux string, frame []byte) error {
	if _, joins := joinedBy(frame); joins {
		return session.NewUsageError(cmd, errors.New("hosts look up which of them has a subflow's connection: use --token without --hops"))
	}
	return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error {
		path, err := client.ExplainPath(ctx, &weirv1.ExplainPathRequest{Mux: mux, Frame: frame})
		if err != nil {
			return fmt.Errorf("explain the path of a packet: %w", err)
		}
		return s.Output.Print(cmd.OutOrStdout(), output.Message{Message: path}, func(w io.Writer) error {
			return writePath(w, frame, path)
		})
	})
}

// writePath writes a paragraph for each node, and where the packet ends.
func writePath(w io.Writer, frame []byte, path *weirv1.ExplainPathResponse) error {
	fmt.Fprintln(w, describeFrame(frame))
	end := "lost"
	for _, hop := range path.GetHops() {
		e := hop.GetExplanation()
		if hop.GetError() != "" {
			fmt.Fprintf(w, "%s %s: not known: %s\n", hop.GetRole(), hop.GetNode(), hop.GetError())
			end = "not known further"
			break
		}
		fmt.Fprintf(w, "%s %s, by generation %d\n", hop.GetRole(), hop.GetNode(), e.GetGeneration())
		for i, step := range e.GetSteps() {
			fmt.Fprintf(w, "  %d. %s\n", i+1, step)
		}
		if end = pathEnd(hop.GetNode(), e); e.GetReply() != nil && len(e.GetReply().GetFrame()) > 0 {
			fmt.Fprintf(w, "  answer %s\n", describeFrame(e.GetReply().GetFrame()))
		}
	}
	_, err := fmt.Fprintf(w, "→ %s\n", end)
	return err
}

// pathEnd is where a packet is after a node.
func pathEnd(node string, e *weirv1.PacketExplanation) string {
	switch e.GetAction() {
	case "deliver":
		return fmt.Sprintf("workload %s on host %s", e.GetWorkload(), node)
	case "transmit":
		return "sent by " + node + " to where no host of the VIP is"
	case "pass":
		return "left to the kernel of " + node
	case "punt":
		return "taken by the daemon of " + node
	}
	return "dropped by " + node + ": " + e.GetVerdict()
}
