package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirlb/weir/internal/manifest"
)

// format is the value of --output. It is a pflag.Value.
type format string

const (
	formatTable format = "table"
	formatJSON  format = "json"
	formatYAML  format = "yaml"
)

var formats = []string{string(formatTable), string(formatJSON), string(formatYAML)}

func (f *format) String() string { return string(*f) }

// Type is what help calls the value.
func (f *format) Type() string { return "format" }

// Set reads the flag.
func (f *format) Set(s string) error {
	for _, known := range formats {
		if s == known {
			*f = format(s)
			return nil
		}
	}
	return fmt.Errorf("must be one of %s", strings.Join(formats, ", "))
}

// outputFlag adds --output to cmd.
func (s *session) outputFlag(cmd *cobra.Command) {
	cmd.Flags().VarP(&s.format, "output", "o", "`format` of the output: "+strings.Join(formats, ", "))
	cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) //nolint:errcheck // the flag stands one line above
}

// print writes value as the format says; table writes it for people.
func (s *session) print(w io.Writer, value any, table func(io.Writer) error) error {
	if s.format == formatTable {
		return table(w)
	}
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	if s.format == formatYAML {
		text, err = manifest.Block(text)
		if err != nil {
			return fmt.Errorf("encode the output: %w", err)
		}
	}
	_, err = fmt.Fprintln(w, strings.TrimSuffix(string(text), "\n"))
	return err
}

// message is a message of the API, to be encoded as the REST API encodes it.
type message struct{ proto.Message }

// MarshalJSON writes the message with stable white space.
func (m message) MarshalJSON() ([]byte, error) {
	text, err := protojson.Marshal(m.Message)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	err = json.Compact(&compact, text)
	return compact.Bytes(), err
}

func messages[T proto.Message](list []T) []message {
	all := make([]message, 0, len(list))
	for _, m := range list {
		all = append(all, message{m})
	}
	return all
}

// columns aligns rows of cells below a head. With no rows it writes empty instead.
type columns struct {
	indent string
	empty  string
	rows   [][]string
}

func newColumns(indent, empty string, head ...string) *columns {
	return &columns{indent: indent, empty: empty, rows: [][]string{head}}
}

func (c *columns) add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = fmt.Sprint(cell)
		if row[i] == "" {
			row[i] = "-"
		}
	}
	c.rows = append(c.rows, row)
}

func (c *columns) write(w io.Writer) error {
	if len(c.rows) == 1 {
		_, err := fmt.Fprintln(w, c.indent+c.empty)
		return err
	}
	var aligned bytes.Buffer
	t := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, row := range c.rows {
		fmt.Fprintln(t, c.indent+strings.Join(row, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(aligned.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}
