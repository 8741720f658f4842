package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manualCommand returns the hidden command that writes the man pages of root and of all commands below it, for
// packages: those of weir in section 1, those of the daemons in section 8.
func manualCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "man DIRECTORY", Short: "Write the man pages of this program", Hidden: true, Args: cobra.ExactArgs(1),
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil }, // no configuration is needed
		RunE: func(_ *cobra.Command, args []string) error {
			return writeManual(root, args[0], os.Getenv("SOURCE_DATE_EPOCH"))
		},
	}
}

// writeManual dates the pages at epoch, in seconds, so that the same program writes the same pages; empty: today.
func writeManual(root *cobra.Command, directory, epoch string) error {
	date := time.Now()
	if epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return fmt.Errorf("read SOURCE_DATE_EPOCH: %w", err)
		}
		date = time.Unix(seconds, 0)
	}
	date = date.UTC()
	section := "1"
	if strings.Contains(root.Name(), "-") { // weir itself is what operators call
		section = "8"
	}
	root.InitDefaultVersionFlag()
	root.DisableAutoGenTag = true
	header := &doc.GenManHeader{Section: section, Date: &date, Source: "Weir " + root.Version, Manual: "Weir"}
	if err := doc.GenManTree(root, header, directory); err != nil {
		return fmt.Errorf("write man pages into %s: %w", filepath.Clean(directory), err)
	}
	return nil
}
