package daemon

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/model"
)

// PinPathVariable names the environment variable that overrides the default of --pin-path.
const PinPathVariable = "WEIR_PIN_PATH"

// PinPathFlag adds --pin-path to cmd and its subcommands.
func PinPathFlag(cmd *cobra.Command, path *string, fallback string) {
	value := cmp.Or(os.Getenv(PinPathVariable), fallback)
	cmd.PersistentFlags().StringVar(path, "pin-path", value,
		"folder on a bpffs that keeps the data plane alive; the variable "+PinPathVariable+" sets it too")
	cmd.PersistentFlags().Lookup("pin-path").DefValue = fallback
}

// CheckRoot says what to do when the process may not touch the data plane.
func CheckRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("must run as root, to load and read eBPF programs: use sudo")
	}
	return nil
}

// Status is what a data plane runs, for people; for programs it is written as JSON.
type Status interface {
	Table(to io.Writer) error
}

// StatusCommand prints what the data plane runs, whether its daemon does or not.
func StatusCommand[S Status](read func() (S, error)) *cobra.Command {
	format := "table"
	cmd := &cobra.Command{
		Use: "status", Short: "Print what the data plane runs; works without the daemon", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "table" && format != "json" {
				return fmt.Errorf("read -o: must be table or json, is %q", format)
			}
			status, err := read()
			if err != nil {
				return err
			}
			if format == "table" {
				return status.Table(cmd.OutOrStdout())
			}
			encoder := json.NewEncoder(cmd.OutOrStdout())
			encoder.SetIndent("", "  ")
			return encoder.Encode(status)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", format, "table or json")
	return cmd
}

// UnloadCommand stops and removes the data plane; short says what that ends.
func UnloadCommand(short string, unload func() error) *cobra.Command {
	return &cobra.Command{
		Use: "unload", Short: short, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return unload() },
	}
}

// WriteVerdicts writes the verdicts that any packet met, as rows of a table.
func WriteVerdicts(to io.Writer, verdicts map[string]model.Counter) {
	fmt.Fprintln(to, "\nVERDICT\tPACKETS\tBYTES")
	for _, name := range slices.Sorted(maps.Keys(verdicts)) {
		if c := verdicts[name]; c.Packets > 0 {
			fmt.Fprintf(to, "%s\t%d\t%d\n", name, c.Packets, c.Bytes)
		}
	}
}
