// Package weir holds nothing but the laws of the house, as tests.
package weir

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/weirlb/weir/"

// Bounds of a file and of a function, in lines.
const (
	goFileLines     = 500
	goFunctionLines = 60
	cHeaderLines    = 400
)

// exceptions to the bounds, each with its reason.
var exceptions = map[string]string{
	"bpf/agent/finish.h:finish":   "a line for each verdict, without a default: a new verdict has no action until it is written here",
	"bpf/mux/finish.h:finish":     "likewise",
	"bpf/overlay/finish.h:finish": "likewise",
}

// files lists the repository's files that are ours: not generated, vendored or built.
func files(t *testing.T, ends ...string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", "bin", "out", "third_party", "bpf/include", "web/node_modules"}, path) {
				return filepath.SkipDir
			}
			return nil
		}
		if generated.MatchString(path) {
			return nil
		}
		for _, end := range ends {
			if strings.HasSuffix(path, end) {
				found = append(found, path)
				break
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatalf("found no files that end in %v", ends)
	}
	return found
}

var generated = regexp.MustCompile(`(_bpfel|\.pb|\.pb\.gw|_grpc\.pb|\.connect)\.go$`)

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestFilesAreShort(t *testing.T) {
	check := func(path string, bound int) {
		lines := strings.Count(read(t, path), "\n")
		if lines > bound && exceptions[path] == "" {
			t.Errorf("%s has %d lines, more than %d: split it by concern", path, lines, bound)
		}
	}
	for _, path := range files(t, ".go") {
		check(path, goFileLines)
	}
	for _, path := range files(t, ".h") {
		check(path, cHeaderLines)
	}
}

func TestFunctionsAreShort(t *testing.T) {
	for _, path := range files(t, ".go") {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			lines := set.Position(fn.End()).Line - set.Position(fn.Pos()).Line + 1
			name := path + ":" + fn.Name.Name
			if lines > goFunctionLines && exceptions[name] == "" {
				t.Errorf("%s has %d lines, more than %d", name, lines, goFunctionLines)
			}
		}
	}
}

func TestPackagesHaveNamesOfTheDomain(t *testing.T) {
	for _, path := range files(t, ".go") {
		name := filepath.Base(filepath.Dir(path))
		if slices.Contains([]string{"util", "utils", "common", "helpers", "types", "base", "misc"}, name) {
			t.Errorf("%s: a package called %s says nothing: name its noun", path, name)
		}
	}
}

func TestPackagesAreDocumented(t *testing.T) {
	documented := map[string]bool{}
	for _, path := range files(t, ".go") {
		if strings.HasSuffix(path, "_test.go") && filepath.Dir(path) != "." {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(path)
		documented[dir] = documented[dir] || file.Doc != nil
	}
	for dir, ok := range documented {
		if !ok && !strings.HasPrefix(dir, "api/v1") {
			t.Errorf("package %s has no package comment", dir)
		}
	}
}

func TestMainsAreWiringOnly(t *testing.T) {
	for _, path := range files(t, "/main.go") {
		if strings.HasPrefix(path, "cmd/") {
			if lines := strings.Count(read(t, path), "\n"); lines > 60 {
				t.Errorf("%s has %d lines: move what is not flags and wiring into internal/", path, lines)
			}
		}
	}
}

func TestBPFFilesNameTheirLicence(t *testing.T) {
	const licence = "SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause"
	for _, path := range files(t, ".h", ".c") {
		if first, _, _ := strings.Cut(read(t, path), "\n"); !strings.Contains(first, licence) {
			t.Errorf("%s: the first line must hold %q", path, licence)
		}
	}
}

// unfinished is spelled apart so that this file does not find itself.
var unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)

func TestNothingIsMarkedUnfinished(t *testing.T) {
	for _, path := range files(t, ".go", ".c", ".h", ".md", ".proto", ".sh", ".yaml", "Makefile") {
		if mark := unfinished.FindString(read(t, path)); mark != "" {
			t.Errorf("%s: %s: finish it, or open an issue", path, mark)
		}
	}
}

func TestNoInitFunctions(t *testing.T) {
	for _, path := range files(t, ".go") {
		if strings.Contains(read(t, path), "\nfunc init()") {
			t.Errorf("%s: an init runs unseen: do it where it is needed", path)
		}
	}
}

// A layer may import only what stands in it or in those before it.
var layers = []struct {
	name     string
	packages []string
}{
	{"model (L0)", []string{"model"}},
	{"pure (L1)", []string{"sorted", "wake", "bucket", "steer", "fabric", "placement", "placechoice", "flowhash", "health", "typo", "selector", "snat", "snatport", "neighbor", "desired", "trust", "fastpath", "fbt", "syncookie", "fairshare", "overload", "overloadpolicy", "placementpolicy", "pkt", "compile", "wire", "manifest", "traffic", "plan", "rate", "elapsed"}},
	{"adapters (L2)", []string{"telemetry", "etcd", "election", "store", "cluster", "bgp", "datapath", "hardware", "netlink", "probe", "segment", "boottime"}},
	{"daemons (L3)", []string{"daemon", "slowpath", "limits", "rpc", "doctor", "apierr", "authz", "audit", "events", "tokenbucket", "connlimit", "controller", "snatalloc", "condition", "sessioncount", "resource", "trustservice", "inflight", "warning", "diagnosis", "replica", "nodesync", "clusterservice", "webui", "apiserver", "manager", "muxd", "agentd", "switchd", "ctl", "planinput", "lab"}},
}

// dependencies returns what the packages import, themselves included, tests left out.
func dependencies(t *testing.T, packages ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-deps"}, packages...)...).Output()
	if err != nil {
		t.Fatalf("go list -deps %v: %v", packages, err)
	}
	return strings.Fields(string(out))
}

func TestImportsGoDownTheLayers(t *testing.T) {
	for i, layer := range layers {
		for _, name := range layer.packages {
			if _, err := os.Stat("internal/" + name); err != nil {
				t.Errorf("layer %s names internal/%s, which is not there", layer.name, name)
				continue
			}
			for _, dep := range dependencies(t, "./internal/"+name+"/...") {
				for _, above := range layers[i+1:] {
					for _, forbidden := range above.packages {
						if dep == module+"internal/"+forbidden || strings.HasPrefix(dep, module+"internal/"+forbidden+"/") {
							t.Errorf("internal/%s, in layer %s, imports %s of layer %s", name, layer.name, dep, above.name)
						}
					}
				}
			}
		}
	}
}

func TestForbiddenImports(t *testing.T) {
	rules := []struct{ packages, forbidden, reason string }{
		{"./cmd/weir-mux", "go.etcd.io/", "a mux holds a stream, not a store"},
		{"./cmd/weir-agent", "go.etcd.io/", "an agent holds a stream, not a store"},
		{"./cmd/weir-agent", "github.com/osrg/gobgp", "hosts speak no BGP"},
		{"./cmd/weir-manager", "github.com/cilium/ebpf", "a manager has no data plane"},
		{"./cmd/weir-manager", "github.com/osrg/gobgp", "a manager speaks no BGP"},
		{"./cmd/weir-manager", module + "internal/lab", "the lab is not for production"},
		{"./cmd/weir-mux", module + "internal/lab", "the lab is not for production"},
		{"./cmd/weir-agent", module + "internal/lab", "the lab is not for production"},
		{"./cmd/weir-switch", "go.etcd.io/", "a switch holds a stream, not a store"},
		{"./cmd/weir-switch", module + "internal/lab", "the lab is not for production"},
		{"./cmd/...", module + "internal/testkit", "no program is made of what tests need"},
		{"./internal/model", module + "api", "the wire contract may change, the nouns stay"},
		{"./internal/desired", "google.golang.org/protobuf", "pure: tables are computed from the model"},
	}
	for _, rule := range rules {
		for _, dep := range dependencies(t, rule.packages) {
			exact := dep == rule.forbidden
			below := strings.HasSuffix(rule.forbidden, "/") && strings.HasPrefix(dep, rule.forbidden) ||
				strings.Contains(rule.forbidden, ".") && strings.HasPrefix(dep, rule.forbidden+"/")
			if exact || below {
				t.Errorf("%s imports %s: %s", rule.packages, dep, rule.reason)
			}
		}
	}
}

// What the pure packages may not import themselves: a clock, I/O, logging, randomness.
func TestPurePackagesAreReallyPure(t *testing.T) {
	for _, name := range []string{"model", "bucket", "flowhash", "health", "typo", "snat", "snatport", "neighbor", "desired", "desired/admission", "desired/nodeconfig", "fabric", "placement"} {
		out, err := exec.Command("go", "list", "-f", "{{join .Imports \" \"}}", "./internal/"+name).Output()
		if err != nil {
			t.Fatalf("go list internal/%s: %v", name, err)
		}
		for _, dep := range strings.Fields(string(out)) {
			if slices.Contains([]string{"os", "net", "net/http", "log", "log/slog", "math/rand", "math/rand/v2", "crypto/rand", "sync"}, dep) {
				t.Errorf("internal/%s imports %s: it is pure, so that it can be tested by an oracle", name, dep)
			}
		}
	}
}

// A key of a sorted.Map whose type nobody registered is told at the first write, which is late.
func TestKeysOfSortedMapsAreRegistered(t *testing.T) {
	used, registered := map[string]string{}, map[string]bool{"string": true, "uint32": true, "netip.Addr": true}
	for _, path := range files(t, ".go") {
		if strings.HasPrefix(path, "internal/sorted/") {
			continue
		}
		text := read(t, path)
		key := func(name string) string { // of its package
			if !strings.Contains(name, ".") && name != "string" && name != "uint32" {
				return filepath.Base(filepath.Dir(path)) + "." + name
			}
			return name
		}
		for _, found := range regexp.MustCompile(`sorted\.Map\[([\w.]{2,}),`).FindAllStringSubmatch(text, -1) {
			used[key(found[1])] = path
		}
		for _, found := range regexp.MustCompile(`sorted\.Register\(([\w.]+)\.Compare\)`).FindAllStringSubmatch(text, -1) {
			registered[key(found[1])] = true
		}
	}
	for name, path := range used {
		if !registered[name] {
			t.Errorf("%s has a sorted.Map with keys of %s: no sorted.Register gives their order", path, name)
		}
	}
	if len(used) < 10 {
		t.Errorf("found only %d types of keys: %v", len(used), used)
	}
}

// The read-me's commands are what CI runs.
func TestCIRunsTheReadme(t *testing.T) {
	ci := read(t, ".ci/run")
	readme := read(t, "README.md")
	for _, command := range []string{"make demo", "make test"} {
		if !strings.Contains(readme, command) {
			t.Errorf("README.md does not name %q", command)
		}
		if !strings.Contains(ci, command) {
			t.Errorf(".ci/run does not run %q", command)
		}
	}
}

var (
	markdownLink = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	codeFence    = regexp.MustCompile("(?s)```.*?```")
)

func TestLinksInDocumentsLead(t *testing.T) {
	for _, path := range files(t, ".md") {
		for _, link := range markdownLink.FindAllStringSubmatch(codeFence.ReplaceAllString(read(t, path), ""), -1) {
			target := filepath.Join(filepath.Dir(path), link[1])
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", path, link[1])
			}
		}
	}
}

// A wait of a fixed time is too long on most machines and too short on one: poll, within a bound. In a
// bubble of testing/synctest time is not real.
func TestTestsPollInsteadOfSleeping(t *testing.T) {
	for _, path := range files(t, ".go") {
		if !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "internal/testkit/") && !strings.HasPrefix(path, "internal/lab/") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(read(t, path), `"testing/synctest"`) {
			continue
		}
		var loops []ast.Node
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ForStmt, *ast.RangeStmt:
				loops = append(loops, n)
			case *ast.CallExpr:
				polls := slices.ContainsFunc(loops, func(l ast.Node) bool { return l.Pos() <= n.Pos() && n.End() <= l.End() })
				if isCall(n, "time", "Sleep") && !polls {
					t.Errorf("%s: sleeps for a fixed time: poll for the condition", set.Position(n.Pos()))
				}
			}
			return true
		})
	}
}

func isCall(call *ast.CallExpr, pkg, name string) bool {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != name {
		return false
	}
	x, ok := selector.X.(*ast.Ident)
	return ok && x.Name == pkg
}

// logKeys are the keys of structured logs. One thing has one key, so that logs of all programs can be
// searched alike.
var logKeys = []string{
	"action", "added", "addresses", "adopted", "as", "backend", "backends", "change", "changed", "collector", "drain", "driver", "enabled",
	"ended", "endpoint", "endpoints", "epoch", "err", "fabric", "fields", "file", "generation", "health", "identity", "ifindex",
	"interface", "level", "listen", "live", "manager", "members", "mode", "muxes", "name", "neighbor", "network", "new", "node",
	"nodes", "old", "peer", "pins", "pool", "procedure", "reason", "refused", "remedy", "remote", "result", "role", "store", "stream",
	"subject", "uplink", "vip", "vips", "workload",
}

func TestLogKeysAreOfOneList(t *testing.T) {
	used := map[string]bool{}
	for _, path := range files(t, ".go") {
		if strings.HasSuffix(path, "_test.go") || !strings.HasPrefix(path, "internal/") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			for _, key := range keysOfLog(call) {
				used[key] = true
				if !slices.Contains(logKeys, key) {
					t.Errorf("%s: log key %q is not of the list: take one that is, or add it", set.Position(call.Pos()), key)
				}
			}
			return true
		})
	}
	for _, key := range logKeys {
		if !used[key] {
			t.Errorf("nothing is logged under the key %q: strike it from the list", key)
		}
	}
}

// keysOfLog are the keys of a call of a logger: every second argument behind the message.
func keysOfLog(call *ast.CallExpr) []string {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	first, known := map[string]int{
		"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "Log": 3, "With": 0,
		"DebugContext": 2, "InfoContext": 2, "WarnContext": 2, "ErrorContext": 2,
	}[selector.Sel.Name]
	if !known {
		return nil
	}
	x := selector.X
	if field, ok := x.(*ast.SelectorExpr); ok {
		x = field.Sel
	}
	if logger, ok := x.(*ast.Ident); !ok || !strings.EqualFold(logger.Name, "log") {
		return nil
	}
	var keys []string
	for i := first; i < len(call.Args); i += 2 {
		if key, ok := call.Args[i].(*ast.BasicLit); ok {
			keys = append(keys, strings.Trim(key.Value, `"`))
		}
	}
	return keys
}

// machinePath is spelled apart so that this file does not find itself.
var machinePath = regexp.MustCompile(`(^|[\s"'=(` + "`" + `])/(tm` + `p|hom` + `e|roo` + `t|wor` + `k)/`)

func TestNoPathsOfOneMachine(t *testing.T) {
	for _, path := range files(t, ".go", ".c", ".h", ".md", ".proto", ".sh", ".yaml", "Makefile", "run") {
		if found := machinePath.FindString(read(t, path)); found != "" {
			t.Errorf("%s holds a path of somebody's machine: %s", path, found)
		}
	}
}

func TestDesignPagesSayWhatToRefuse(t *testing.T) {
	for _, path := range files(t, ".md") {
		if !strings.HasPrefix(path, "docs/design/") {
			continue
		}
		headings := heading.FindAllStringSubmatch(read(t, path), -1)
		if last := headings[len(headings)-1][1]; last != "What a reviewer must refuse" {
			t.Errorf("%s ends in %q, not in what a reviewer must refuse", path, last)
		}
	}
}

var (
	heading    = regexp.MustCompile(`(?m)^## (.*)$`)
	namedFlag  = regexp.MustCompile("`--([a-z][a-z0-9-]*[a-z0-9])")
	otherFlags = []string{"retry"} // curl's
)

// The commands' flags stand in docs/reference/cli.md, which has a test of its own.
func TestFlagsOfDaemonsAreInTheReference(t *testing.T) {
	added := regexp.MustCompile(`Var\(&[^,]+, "([a-z0-9-]+)"`)
	reference := read(t, "docs/reference/daemons.md")
	for _, path := range files(t, ".go") {
		if strings.HasSuffix(path, "_test.go") || !strings.HasPrefix(path, "cmd/weir-") && !isDaemonOptions.MatchString(path) {
			continue
		}
		for _, flag := range added.FindAllStringSubmatch(read(t, path), -1) {
			if !strings.Contains(reference, "`--"+flag[1]+"`") {
				t.Errorf("docs/reference/daemons.md does not name --%s of %s", flag[1], path)
			}
		}
	}
}

var isDaemonOptions = regexp.MustCompile(`^internal/(muxd|agentd|switchd|daemon)/`)

func TestFlagsInDocumentsExist(t *testing.T) {
	var code strings.Builder
	for _, path := range files(t, ".go") {
		code.WriteString(read(t, path))
	}
	for _, path := range files(t, ".md") {
		for _, flag := range namedFlag.FindAllStringSubmatch(read(t, path), -1) {
			known := strings.Contains(code.String(), `"`+flag[1]+`"`) || slices.Contains(otherFlags, flag[1])
			if !known && !strings.HasSuffix(flag[0], "--max") { // of --max-*
				t.Errorf("%s names --%s, which is no flag of any program", path, flag[1])
			}
		}
	}
}
