package manifestfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/manifest"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

// suffixes are those of the files in a folder that hold manifests.
var suffixes = []string{".yaml", ".yml", ".json"}

// ProblemError tells what is wrong with manifests: a line for people, then each problem.
type ProblemError struct {
	what     string // "read the manifests"
	problems manifest.Problems
	Applied  int    // VIPs before those
	Beside   string // what was applied by calls of its own before, "tenants and fabrics"; empty: nothing
}

func (e *ProblemError) Error() string {
	things := "1 problem"
	if n := len(e.problems); n != 1 {
		things = fmt.Sprintf("%d problems", n)
	}
	var done []string
	if e.Beside != "" {
		done = append(done, e.Beside)
	}
	if e.Applied > 0 {
		done = append(done, fmt.Sprintf("the first %d VIPs", e.Applied))
	}
	changed := "nothing was changed"
	if len(done) > 0 {
		changed = "only " + strings.Join(done, " and ") + " were applied"
	}
	return fmt.Sprintf("%s: %s, %s\n%v", e.what, things, changed, e.problems)
}

// AddFlag adds -f to cmd.
func AddFlag(cmd *cobra.Command, names *[]string, usage string) {
	cmd.Flags().StringArrayVarP(names, "filename", "f", nil, usage)
	cmd.MarkFlagFilename("filename", "yaml", "yml", "json") //nolint:errcheck // the flag stands one line above
}

// Read reads all documents of the files named, of the files in folders named, and of stdin
// where the name is "-". It tells warnings to the command's standard error.
func Read(cmd *cobra.Command, names []string) ([]manifest.Resource, error) {
	var resources []manifest.Resource
	var problems manifest.Problems
	for _, name := range names {
		files, err := manifestFiles(name)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := ReadText(cmd.InOrStdin(), file)
			if err != nil {
				return nil, err
			}
			read, err := manifest.Parse(file, text)
			var wrong manifest.Problems
			if errors.As(err, &wrong) {
				problems = append(problems, wrong...)
			} else if err != nil {
				return nil, err
			}
			resources = append(resources, read...)
		}
	}
	if len(problems) == 0 {
		problems = manifest.Repeated(resources)
	}
	if len(problems) > 0 {
		return nil, &ProblemError{what: "read the manifests", problems: problems}
	}
	for _, r := range resources {
		for _, warning := range r.Warnings {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: %v\n", warning)
		}
	}
	return resources, nil
}

// manifestFiles returns the files that name stands for.
func manifestFiles(name string) ([]string, error) {
	if name == "-" {
		return []string{name}, nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, readError(name, err)
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, readError(name, err)
	}
	var files []string
	for _, entry := range entries {
		if !entry.IsDir() && slices.Contains(suffixes, filepath.Ext(entry.Name())) {
			files = append(files, filepath.Join(name, entry.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("read %s: the folder holds no .yaml, .yml or .json file", name)
	}
	return files, nil
}

// ReadText reads a file, or stdin where its name is "-".
func ReadText(stdin io.Reader, file string) ([]byte, error) {
	if file == "-" {
		text, err := io.ReadAll(stdin)
		if err != nil {
			return nil, readError("standard input", err)
		}
		return text, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, readError(file, err)
	}
	return text, nil
}

func readError(name string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("read %s: %w", name, err)
}

// LocateIn gives a manager's refusal of one resource the lines of its file.
func LocateIn(err error, r manifest.Resource) error {
	var refused *rpc.Error
	if !errors.As(err, &refused) || len(refused.Fields) == 0 {
		return err
	}
	var problems manifest.Problems
	for _, field := range refused.Fields {
		problems = append(problems, r.Locate(&model.FieldError{Field: field.Field, Reason: field.Reason}))
	}
	return &ProblemError{what: "the manager refused", problems: problems}
}

// Locate gives a manager's refusal of resources the lines of their files.
func Locate(err error, resources []manifest.Resource) error {
	var refused *rpc.Error
	if !errors.As(err, &refused) || len(refused.Fields) == 0 {
		return err
	}
	var fields []*model.FieldError
	for _, field := range refused.Fields {
		fields = append(fields, &model.FieldError{Field: field.Field, Reason: field.Reason})
	}
	if problems, found := locate(fields, resources); found {
		return &ProblemError{what: "the manager refused", problems: problems}
	}
	return err
}

// Wrong gives what is wrong with an apply of resources, as joined FieldErrors, the lines of their files.
func Wrong(what string, err error, resources []manifest.Resource) error {
	if problems, found := locate(model.FieldErrors(err), resources); found {
		return &ProblemError{what: what, problems: problems}
	}
	return err
}

// locate finds the lines of fields, whose paths are those of an apply of resources; not found: that of one has none.
func locate(fields []*model.FieldError, resources []manifest.Resource) (problems manifest.Problems, found bool) {
	kinds := map[string][]manifest.Resource{} // as an apply has them
	for _, r := range resources {
		kind := map[string]string{
			manifest.Kind: "vips", manifest.KindPool: "pools", manifest.KindPrefixList: "prefixLists",
			manifest.KindTenant: "tenants", manifest.KindNetwork: "networks", manifest.KindOverlay: "overlays",
		}[r.Kind()]
		kinds[kind] = append(kinds[kind], r)
	}
	for _, field := range fields {
		list, rest, _ := strings.Cut(field.Field, "[")
		number, path, _ := strings.Cut(rest, "]")
		i, wrong := strconv.Atoi(number)
		of := kinds[list]
		if wrong != nil || i < 0 || i >= len(of) {
			return nil, false
		}
		path = strings.TrimPrefix(path, ".")
		problems = append(problems, of[i].Locate(&model.FieldError{Field: path, Reason: field.Reason}))
	}
	return problems, len(problems) > 0
}
