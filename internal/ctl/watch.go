package ctl

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// watchVIPs writes VIPs as they change, one line each.
func (s *session) watchVIPs(cmd *cobra.Command, r *weirv1.WatchVIPsRequest) error {
	client, err := s.connect()
	if err != nil {
		return err
	}
	defer client.Close()
	err = client.EachVIP(cmd.Context(), r, func(p *weirv1.WatchVIPsResponse) error {
		if p.GetVip() == nil {
			return nil
		}
		return s.printLine(cmd.OutOrStdout(), p, func(w io.Writer) {
			vip := p.GetVip()
			fmt.Fprintf(w, "%-8s  %s  %s  %s  %s\n", p.GetType(), vip.GetName(), vip.GetAddress(), muxShare(vip), conditionWords(vip))
		})
	})
	return watchEnded(cmd, "watch vips", err)
}

// printLine writes one message of a watch: as JSON on one line, or as table does.
func (s *session) printLine(w io.Writer, p proto.Message, table func(io.Writer)) error {
	switch s.format {
	case formatTable:
		table(w)
		return nil
	case formatJSON:
		text, err := message{p}.MarshalJSON()
		if err != nil {
			return fmt.Errorf("encode the output: %w", err)
		}
		_, err = fmt.Fprintf(w, "%s\n", text)
		return err
	}
	if _, err := fmt.Fprintln(w, "---"); err != nil {
		return err
	}
	return s.print(w, message{p}, nil)
}

// watchEnded is nil if the user ended the watch.
func watchEnded(cmd *cobra.Command, what string, err error) error {
	if cmd.Context().Err() != nil {
		return nil
	}
	if err == nil {
		err = errors.New("the manager ended it: try again")
	}
	return fmt.Errorf("%s: %w", what, err)
}

// conditionWords are the conditions that do not hold, or "ready".
func conditionWords(vip *weirv1.VIP) string {
	var words []string
	for _, c := range vip.GetStatus().GetConditions() {
		if c.GetStatus() != "true" {
			words = append(words, c.GetType()+"="+c.GetStatus()+" ("+c.GetReason()+")")
		}
	}
	if len(words) == 0 {
		return "ready"
	}
	return strings.Join(words, ", ")
}
