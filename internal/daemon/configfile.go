package daemon

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// ConfigFile is the file that packages ship: every key of cmd, in the order of its help, with meaning
// and default, all behind a #.
func ConfigFile(cmd *cobra.Command) string {
	var text strings.Builder
	fmt.Fprintf(&text, `# Configuration of %s. Each key is a flag of that name; %[1]s --help tells them too.
# A flag wins over its variable in the environment (WEIR_LOG_LEVEL for log-level), and that over this file.
# What stands behind a # is the default. The program reads the file when it starts.
`, cmd.Name())
	flags := configurable(cmd)
	write := func(f *pflag.Flag) {
		if flags[f.Name] != f {
			return
		}
		delete(flags, f.Name)
		fmt.Fprintf(&text, "\n# %s\n#%s:%s\n", f.Usage, f.Name, defaultOf(f))
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if cmd.PersistentFlags().Lookup(f.Name) == nil {
			write(f)
		}
	})
	cmd.PersistentFlags().VisitAll(write)
	return text.String()
}

// defaultOf is the default as YAML, with a space before it, or nothing if the machine or another flag
// decides it.
func defaultOf(f *pflag.Flag) string {
	value := f.DefValue
	if list, many := f.Value.(pflag.SliceValue); many && len(list.GetSlice()) == 0 {
		return " []"
	}
	switch {
	case value == "", f.Name == "name", strings.Contains(f.Usage, "(default"):
		return ""
	case f.Value.Type() == "string" && strings.ContainsAny(value, "#{}[]&*!|>%@`'\""):
		return fmt.Sprintf(" %q", value)
	}
	return " " + value
}
