package join

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v4"

	"github.com/weirlb/weir/internal/daemon"
	"github.com/weirlb/weir/internal/typo"
)

// setting is a key of a daemon's configuration, with its values.
type setting struct {
	key    string
	values []string // more than one: of a flag that is repeatable
}

// flagsOf are the keys that --set does not take, with the flag that says the same, and by which the join itself goes.
var flagsOf = map[string]string{
	"name": "--name", "manager": "--manager", "join": "--manager", "ca-hash": "--ca-hash", "token-file": "--token-file",
}

// CheckSet says what is wrong with the values of --set.
func CheckSet(set []string) error {
	_, err := parseSet(set)
	return err
}

// parseSet parses the values of --set. A key that comes twice has both values.
func parseSet(set []string) (all []setting, err error) {
	for _, text := range set {
		key, value, ok := strings.Cut(text, "=")
		if !ok || value == "" {
			return nil, fmt.Errorf("read --set %q: must be KEY=VALUE", text)
		}
		if flag := flagsOf[key]; flag != "" {
			return nil, fmt.Errorf("read --set %q: %s is said by %s, which the join goes by too", text, key, flag)
		}
		if i := slices.IndexFunc(all, func(s setting) bool { return s.key == key }); i >= 0 {
			all[i].values = append(all[i].values, value)
			continue
		}
		all = append(all, setting{key, []string{value}})
	}
	for _, s := range all {
		if s.key == "data-dir" && len(s.values) > 1 {
			return nil, errors.New("read --set: data-dir has two values")
		}
	}
	return all, nil
}

// valueOf is the first value of a key; empty: it is not set.
func valueOf(settings []setting, key string) string {
	for _, s := range settings {
		if s.key == key {
			return s.values[0]
		}
	}
	return ""
}

// keyLine is a line of a key, which may stand behind a # as its default.
var keyLine = regexp.MustCompile(`^(#?)([a-z][a-z0-9-]*):`)

// keyForm is a key as flags have it.
var keyForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,63}$`)

// apply puts settings into the text of a file of configuration: where a key stands behind a # it is written there, else
// at the end. A key that has another value already is an error, and nothing is written over.
func apply(text string, has daemon.Keys, settings []setting) (string, error) {
	var problems []error
	lines := strings.Split(text, "\n")
	known := map[string]int{} // lines of keys that stand behind a #
	for i, line := range lines {
		if found := keyLine.FindStringSubmatch(line); found != nil && found[1] == "#" {
			known[found[2]] = i
		}
	}
	for _, s := range settings {
		value, err := s.yaml()
		if err != nil {
			problems = append(problems, err)
			continue
		}
		if there, ok := has[s.key]; ok {
			if !slices.Equal(there, s.values) {
				problems = append(problems, fmt.Errorf("%s is %s there, and %s is asked for",
					s.key, cmp.Or(strings.Join(there, " "), "without a value"), strings.Join(s.values, " ")))
			}
			continue
		}
		line := s.key + ": " + value
		if i, ok := known[s.key]; ok {
			lines[i] = line
			continue
		}
		if len(known) > 0 {
			problems = append(problems, unknownKey(s.key, known))
			continue
		}
		if last := len(lines) - 1; last >= 0 && lines[last] == "" {
			lines = append(lines[:last], line, "")
		} else {
			lines = append(lines, line, "")
		}
	}
	return strings.Join(lines, "\n"), errors.Join(problems...)
}

func unknownKey(key string, known map[string]int) error {
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, name)
	}
	slices.Sort(names)
	if nearest := typo.Nearest(key, names); nearest != "" {
		return fmt.Errorf("%s is no key: do you mean %s?", key, nearest)
	}
	return fmt.Errorf("%s is no key of this program", key)
}

// yaml writes the values so that they are read as what they are.
func (s setting) yaml() (string, error) {
	if !keyForm.MatchString(s.key) {
		return "", fmt.Errorf("%.64q is no key", s.key)
	}
	var nodes []*yaml.Node
	for _, value := range s.values {
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return "", fmt.Errorf("%s: a value must be one line, without control characters", s.key)
		}
		n := &yaml.Node{}
		n.SetString(value)
		n.Tag = "" // a number is written as one
		nodes = append(nodes, n)
	}
	node := nodes[0]
	if len(nodes) > 1 {
		node = &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle, Content: nodes}
	}
	out, err := yaml.Marshal(node)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", s.key, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// plannedFile is a file of configuration as it shall be.
type plannedFile struct {
	path, text string
	changed    bool
	access     access
}

// access is who may do what with a file.
type access struct {
	mode     os.FileMode
	uid, gid int // -1: those of this process
}

// accessOf is the access of a file that is to be replaced; of none, that of a new one. What is no plain file is not
// replaced: behind a symbolic link there is somebody else's.
func accessOf(path string) (access, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return access{mode: 0o644, uid: -1, gid: -1}, nil
	case err != nil:
		return access{}, err
	case info.Mode()&os.ModeSymlink != 0:
		return access{}, fmt.Errorf("%s is a symbolic link, which is not written through: put the file itself there, or add the keys by hand", path)
	case !info.Mode().IsRegular():
		return access{}, fmt.Errorf("%s is no plain file", path)
	}
	a := access{mode: info.Mode().Perm(), uid: -1, gid: -1}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		a.uid, a.gid = int(owner.Uid), int(owner.Gid)
	}
	return a, nil
}

// planConfig applies settings to the text of a file, and writes nothing.
func planConfig(path string, settings []setting) (plannedFile, error) {
	has, err := daemon.ReadConfig(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return plannedFile{}, err
	}
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return plannedFile{}, err
	}
	text, err := apply(string(before), has, settings)
	if err != nil {
		return plannedFile{}, fmt.Errorf("%s: %w", path, err)
	}
	// The daemon is to read of it what was there and what is asked for: a file of another form would say something else.
	want := daemon.Keys{}
	maps.Copy(want, has)
	for _, s := range settings {
		want[s.key] = s.values
	}
	if reads, err := daemon.ParseConfig([]byte(text)); err != nil || !maps.EqualFunc(reads, want, slices.Equal) {
		return plannedFile{}, fmt.Errorf("keys that are added to %s would not be read as they are meant: add them by hand", path)
	}
	planned := plannedFile{path: path, text: text, changed: text != string(before)}
	if planned.changed {
		planned.access, err = accessOf(path)
	}
	return planned, err
}

// write writes what was planned, in one step.
func (p plannedFile) write() error {
	if !p.changed {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(p.path), 0o755); err != nil {
		return err
	}
	return replaceFile(p.path, []byte(p.text), p.access)
}

// replaceFile writes a file in one step that a crash does not halve. Nobody has another access to it meanwhile.
func replaceFile(path string, data []byte, a access) error {
	next, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = next.Write(data)
	if err = errors.Join(err, next.Chown(a.uid, a.gid), next.Chmod(a.mode), next.Sync(), next.Close()); err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(next.Name()))
	}
	return nil
}
