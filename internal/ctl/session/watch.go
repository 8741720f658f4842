package session

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/ctl/output"
	"github.com/weirlb/weir/internal/rpc"
)

// repeatTime is the time between two looks of a command that watches by asking again.
const repeatTime = 2 * time.Second

// Watch draws what draw asks the manager for, again and again, until the user interrupts: on a terminal in place of what was
// there, else when it differs. A manager that does not answer is waited for.
func (s *Session) Watch(cmd *cobra.Command, draw func(context.Context, *rpc.Client, io.Writer) error) error {
	client, err := s.Connect()
	if err != nil {
		return err
	}
	defer client.Close()
	out := cmd.OutOrStdout()
	_, paints := out.(output.Painter)
	ticker := time.NewTicker(repeatTime)
	defer ticker.Stop()
	before := ""
	for first := true; ; first = false {
		text, err := s.drawOnce(cmd.Context(), client, draw, paints)
		switch {
		case cmd.Context().Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil:
			fmt.Fprintf(cmd.ErrOrStderr(), "%v: trying on\n", err)
		case output.IsTerminal(out):
			fmt.Fprint(out, "\x1b[H\x1b[2J"+text)
		case text != before:
			if !first && s.Output == output.FormatTable {
				fmt.Fprintln(out)
			}
			fmt.Fprint(out, text)
		}
		before = text
		select {
		case <-cmd.Context().Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (s *Session) drawOnce(
	ctx context.Context, client *rpc.Client, draw func(context.Context, *rpc.Client, io.Writer) error, paints bool,
) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTime)
	defer cancel()
	var text bytes.Buffer
	var to io.Writer = &text
	if paints {
		to = output.Painter{Writer: to}
	}
	err := draw(ctx, client, to)
	return text.String(), err
}

// View runs draw once, or again and again if watch says so.
func (s *Session) View(cmd *cobra.Command, watch bool, draw func(context.Context, *rpc.Client, io.Writer) error) error {
	if watch {
		return s.Watch(cmd, draw)
	}
	return s.Call(cmd.Context(), func(ctx context.Context, client *rpc.Client) error { return draw(ctx, client, cmd.OutOrStdout()) })
}
