package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"

	"github.com/weirlb/weir/internal/typo"
)

// configFlag names the flag that names the file; it is no key of one.
const configFlag = "config"

// ConfigError says what is wrong with a configuration, which a restart does not mend.
type ConfigError struct{ err error }

func (e *ConfigError) Error() string { return e.err.Error() }
func (e *ConfigError) Unwrap() error { return e.err }

// ExitCode is EX_CONFIG of sysexits.h. The units of systemd do not start a program again after it.
func (e *ConfigError) ExitCode() int { return 78 }

// ConfigFlag adds --config to cmd and its subcommands, and the command that prints a file with every
// default. Each flag of cmd is a key of the file and a variable: --log-level is log-level and
// WEIR_LOG_LEVEL. A flag that is given wins over its variable, and that over the file. It is called
// last, when all other flags stand.
func ConfigFlag(cmd *cobra.Command) {
	var path string
	cmd.PersistentFlags().StringVar(&path, "config", "", "file with values for these flags, as "+cmd.Name()+" config prints it")
	cmd.PersistentPreRunE = func(*cobra.Command, []string) error {
		if err := configure(cmd, path, os.Getenv); err != nil {
			return &ConfigError{err}
		}
		return nil
	}
	cmd.AddCommand(&cobra.Command{
		Use: configFlag, Short: "Print a file for --config with every key, its meaning and its default", Args: cobra.NoArgs,
		// A file that can't be read is no reason not to say how one looks.
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		RunE: func(sub *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(sub.OutOrStdout(), ConfigFile(cmd))
			return err
		},
	})
}

// Variable names the environment variable that sets a flag.
func Variable(flag string) string {
	return "WEIR_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// configure sets the flags of cmd that the command line did not, from the environment and the file.
func configure(cmd *cobra.Command, path string, getenv func(string) string) error {
	flags := configurable(cmd)
	for _, name := range sorted(flags) {
		flag := flags[name]
		text := getenv(Variable(name))
		if flag.Changed || text == "" {
			continue
		}
		values := []string{text}
		if _, many := flag.Value.(pflag.SliceValue); many {
			values = strings.Fields(text)
		}
		if err := set(flag, values); err != nil {
			return fmt.Errorf("read the variable %s: %w", Variable(name), err)
		}
	}
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read --config: %w", err)
	}
	if err := fromFile(flags, data); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// configurable are the flags that a file can set, by name.
func configurable(cmd *cobra.Command) map[string]*pflag.Flag {
	found := map[string]*pflag.Flag{}
	add := func(f *pflag.Flag) {
		if !slices.Contains([]string{configFlag, "help", "version"}, f.Name) {
			found[f.Name] = f
		}
	}
	cmd.Flags().VisitAll(add)
	cmd.PersistentFlags().VisitAll(add)
	return found
}

func sorted(flags map[string]*pflag.Flag) []string {
	names := make([]string, 0, len(flags))
	for name := range flags {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// fromFile sets the flags that have no value yet. It tells all that is wrong at once, by line.
func fromFile(flags map[string]*pflag.Flag, data []byte) error {
	document, err := mapping(data)
	if err != nil || document == nil {
		return err
	}
	var problems []error
	seen := map[string]int{}
	for i := 0; i+1 < len(document.Content); i += 2 {
		key, value := document.Content[i], document.Content[i+1]
		if err := fromLine(flags, seen, key, value); err != nil {
			problems = append(problems, fmt.Errorf("line %d: %s: %w", key.Line, key.Value, err))
		}
	}
	return errors.Join(problems...)
}

// mapping is the mapping that a file is; nil if there are but comments.
func mapping(data []byte) (*yaml.Node, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return nil, err
	}
	if len(root.Content) == 0 || root.Content[0].Tag == "!!null" {
		return nil, nil //nolint:nilnil // such a file sets nothing
	}
	if document := root.Content[0]; document.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: must be lines of key: value", document.Line)
	}
	return root.Content[0], nil
}

// fromLine sets the flag of one key. seen has the lines of the keys before it.
func fromLine(flags map[string]*pflag.Flag, seen map[string]int, key, value *yaml.Node) error {
	flag, ok := flags[key.Value]
	if !ok {
		if nearest := typo.Nearest(key.Value, sorted(flags)); nearest != "" {
			return fmt.Errorf("is no key: do you mean %s?", nearest)
		}
		return errors.New("is no key of this program")
	}
	if line := seen[key.Value]; line > 0 {
		return fmt.Errorf("stands in line %d already", line)
	}
	seen[key.Value] = key.Line
	values, err := texts(flag, value)
	if err != nil || flag.Changed {
		return err
	}
	return set(flag, values)
}

// errNoValue is of a key with nothing behind it.
var errNoValue = errors.New("has no value: give it one, or put a # before the line for the default")

// texts are the values of a key, as the flag takes them.
func texts(flag *pflag.Flag, value *yaml.Node) ([]string, error) {
	value = resolved(value)
	if _, many := flag.Value.(pflag.SliceValue); !many && value.Kind != yaml.ScalarNode {
		return nil, errors.New("must be one value")
	}
	return valuesOf(value)
}

// resolved is what an alias stands for.
func resolved(value *yaml.Node) *yaml.Node {
	for value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	return value
}

// valuesOf are the values of a key: one, those of a list, or pairs.
func valuesOf(value *yaml.Node) ([]string, error) {
	value = resolved(value)
	switch {
	case value.Tag == "!!null":
		return nil, errNoValue
	case value.Kind == yaml.ScalarNode:
		return []string{value.Value}, nil
	case value.Kind == yaml.MappingNode:
		text, err := pairs(value)
		return []string{text}, err
	case value.Kind != yaml.SequenceNode:
		return nil, errors.New("must be one value")
	}
	found := make([]string, 0, len(value.Content))
	for _, item := range value.Content {
		text := item.Value
		if item.Kind == yaml.MappingNode {
			var err error
			if text, err = pairs(item); err != nil {
				return nil, err
			}
		} else if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
			return nil, fmt.Errorf("line %d: must be one value", item.Line)
		}
		found = append(found, text)
	}
	return found, nil
}

// pairs writes {address: 10.0.0.1, as: 65000} as flags take it: address=10.0.0.1,as=65000.
func pairs(mapping *yaml.Node) (string, error) {
	parts := make([]string, 0, len(mapping.Content)/2)
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		if value.Kind != yaml.ScalarNode || value.Tag == "!!null" || strings.Contains(value.Value, ",") {
			return "", fmt.Errorf("line %d: %s: must be one value without a comma", key.Line, key.Value)
		}
		parts = append(parts, key.Value+"="+value.Value)
	}
	return strings.Join(parts, ","), nil
}

// set gives the flag its values.
func set(flag *pflag.Flag, values []string) error {
	if many, ok := flag.Value.(pflag.SliceValue); ok {
		if err := many.Replace(values); err != nil {
			return err
		}
		flag.Changed = true
		return nil
	}
	if err := flag.Value.Set(values[0]); err != nil {
		return fmt.Errorf("%q: %w", values[0], err)
	}
	flag.Changed = true
	return nil
}

// maxConfig bounds a file of configuration that another program than its own reads.
const maxConfig = 1 << 20

// Keys are the keys of a daemon's file with their values, as its flags take them: of a list more than one, of a key
// that stands there without a value none.
type Keys map[string][]string

// Value is that of a key that has one; else empty.
func (k Keys) Value(key string) string {
	if len(k[key]) != 1 {
		return ""
	}
	return k[key][0]
}

// ReadConfig reads a daemon's file, for a program that is not that daemon. Without the file the error is os.ErrNotExist.
func ReadConfig(path string) (Keys, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxConfig+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	keys, err := ParseConfig(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return keys, nil
}

// ParseConfig parses the text of a daemon's file. Whether the keys are some of the daemon it does not know.
func ParseConfig(data []byte) (Keys, error) {
	if len(data) > maxConfig {
		return nil, fmt.Errorf("must be %d bytes at most", maxConfig)
	}
	document, err := mapping(data)
	if err != nil || document == nil {
		return Keys{}, err
	}
	keys := Keys{}
	var problems []error
	for i := 0; i+1 < len(document.Content); i += 2 {
		key, value := document.Content[i], document.Content[i+1]
		if _, ok := keys[key.Value]; ok {
			problems = append(problems, fmt.Errorf("line %d: %s: stands there twice", key.Line, key.Value))
			continue
		}
		values, err := valuesOf(value)
		if err != nil && !errors.Is(err, errNoValue) {
			problems = append(problems, fmt.Errorf("line %d: %s: %w", key.Line, key.Value, err))
		}
		keys[key.Value] = values
	}
	return keys, errors.Join(problems...)
}
