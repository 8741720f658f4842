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

// Format is the value of --output. It is a pflag.Value.
type Format string

// The formats. A table is for people, and may change.
const (
	FormatTable Format = "table"
	FormatJSON  Format = "json"
	FormatYAML  Format = "yaml"
)

var formats = []string{string(FormatTable), string(FormatJSON), string(FormatYAML)}

func (f *Format) String() string { return string(*f) }

// Type is what help calls the value.
func (f *Format) Type() string { return "format" }

// Set reads the flag.
func (f *Format) Set(s string) error {
	if !slices.Contains(formats, s) {
		return fmt.Errorf("must be one of %s", strings.Join(formats, ", "))
	}
	*f = Format(s)
	return nil
}

// AddFlag adds --output to cmd.
func (f *Format) AddFlag(cmd *cobra.Command) {
	cmd.Flags().VarP(f, "output", "o", "`format` of the output: "+strings.Join(formats, ", "))
	complete := cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)
	cmd.RegisterFlagCompletionFunc("output", complete) //nolint:errcheck // the flag stands above
}

// Print writes value as the format says; table writes it for people.
func (f Format) Print(w io.Writer, value any, table func(io.Writer) error) error {
	if f == FormatTable {
		return table(w)
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
	case FormatTable:
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
	case f == FormatTable:
		return table(w)
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
