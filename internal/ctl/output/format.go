package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirlb/weir/internal/manifest"
)

// Format is the value of --output.
type Format string

// The formats. A table is for people, and may change.
const (
	FormatTable Format = "table"
	FormatJSON  Format = "json"
	FormatYAML  Format = "yaml"
	FormatWide  Format = "wide" // a table with more columns
	FormatName  Format = "name" // names alone, a line each
)

// common are the formats of every command; wide and name are only of those that have them.
var common = []Format{FormatTable, FormatJSON, FormatYAML}

// choice is the flag --output of one command. It is a pflag.Value.
type choice struct {
	format *Format
	of     []string
}

func (c choice) String() string { return string(*c.format) }

// Type is what help calls the value.
func (c choice) Type() string { return "format" }

// Set reads the flag.
func (c choice) Set(s string) error {
	if !slices.Contains(c.of, s) {
		return fmt.Errorf("must be one of %s", strings.Join(c.of, ", "))
	}
	*c.format = Format(s)
	return nil
}

// AddFlag adds --output to cmd, with the formats that every command has and those that only some have.
func (f *Format) AddFlag(cmd *cobra.Command, more ...Format) {
	c := choice{format: f}
	for _, one := range slices.Concat(common[:1], more, common[1:]) {
		c.of = append(c.of, string(one))
	}
	cmd.Flags().VarP(c, "output", "o", "`format` of the output: "+strings.Join(c.of, ", "))
	complete := cobra.FixedCompletions(c.of, cobra.ShellCompDirectiveNoFileComp)
	cmd.RegisterFlagCompletionFunc("output", complete) //nolint:errcheck // the flag stands above
}

// Print writes value as the format says; table writes it for people.
func (f Format) Print(w io.Writer, value any, table func(io.Writer) error) error {
	switch f {
	case FormatTable, FormatWide:
		return table(w)
	case FormatName:
		return printNames(w, value)
	case FormatJSON, FormatYAML:
	}
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	if f == FormatYAML {
		text, err = manifest.Block(text)
		if err != nil {
			return fmt.Errorf("encode the output: %w", err)
		}
	}
	_, err = fmt.Fprintln(w, strings.TrimSuffix(string(text), "\n"))
	return err
}

// PrintLine writes one message of a watch: as JSON on one line, or as table does.
func (f Format) PrintLine(w io.Writer, p proto.Message, table func(io.Writer)) error {
	switch f {
	case FormatTable, FormatWide, FormatName:
		table(w)
		return nil
	case FormatJSON:
		text, err := Message{Message: p}.MarshalJSON()
		if err != nil {
			return fmt.Errorf("encode the output: %w", err)
		}
		_, err = fmt.Fprintf(w, "%s\n", text)
		return err
	}
	if _, err := fmt.Fprintln(w, "---"); err != nil {
		return err
	}
	return f.Print(w, Message{Message: p}, nil)
}

// PrintResources writes resources of a list: as a table, or as manifests with their status, one as itself.
func PrintResources[T proto.Message](
	f Format, w io.Writer, list []T, status func(T) any, table func(io.Writer) error,
) error {
	documents := Documents(list, status)
	switch {
	case f == FormatTable, f == FormatWide, f == FormatName:
		return f.Print(w, documents, table)
	case f == FormatYAML:
		text, err := manifest.Encode(documents...)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	case len(documents) == 1:
		return f.Print(w, documents[0], nil)
	}
	return f.Print(w, documents, nil)
}

// Documents turns resources of the API into manifests with their status.
func Documents[T proto.Message](list []T, status func(T) any) []manifest.Document {
	documents := make([]manifest.Document, 0, len(list))
	for _, m := range list {
		documents = append(documents, manifest.Document{Message: m, Status: status(m)})
	}
	return documents
}

// Message is a message of the API, to be encoded as the REST API encodes it.
type Message struct{ proto.Message }

// MarshalJSON writes the message with stable white space.
func (m Message) MarshalJSON() ([]byte, error) {
	text, err := protojson.Marshal(m.Message)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	err = json.Compact(&compact, text)
	return compact.Bytes(), err
}

// Messages are those of a list.
func Messages[T proto.Message](list []T) []Message {
	all := make([]Message, 0, len(list))
	for _, m := range list {
		all = append(all, Message{m})
	}
	return all
}

// printNames writes the names of what is listed.
func printNames(w io.Writer, value any) error {
	var all []any
	switch value := value.(type) {
	case []Message:
		for _, m := range value {
			all = append(all, m.Message)
		}
	case []manifest.Document:
		for _, d := range value {
			all = append(all, d.Message)
		}
	case Message:
		all = append(all, value.Message)
	default:
		return fmt.Errorf("print names: a %T has none", value)
	}
	for _, one := range all {
		named, ok := one.(interface{ GetName() string })
		if !ok {
			return fmt.Errorf("print names: a %T has none", one)
		}
		if _, err := fmt.Fprintln(w, named.GetName()); err != nil {
			return err
		}
	}
	return nil
}
