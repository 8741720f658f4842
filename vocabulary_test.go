package weir

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// banned are words of a private vocabulary, each with the field's own. How many names still have one is written down:
// the number only falls, and a word that is at 0 never comes back.
var banned = map[string]struct {
	instead string
	names   int
}{
	"aside":      {"slow path", 0},
	"cede":       {"drain, of a bucket", 0},
	"ceded":      {"drained", 0},
	"asker":      {"demand", 0},
	"askers":     {"demands", 0},
	"census":     {"session report", 0},
	"complaint":  {"overload report", 0},
	"diverted":   {"overridden", 0},
	"crowded":    {"congested", 0},
	"doubt":      {"verify leadership", 0},
	"handover":   {"context, or transfer", 0},
	"leaver":     {"source NAT client", 0},
	"leavers":    {"source NAT clients", 0},
	"mend":       {"reconcile", 0},
	"mitigate":   {"overload policy", 0},
	"mitigated":  {"overloaded", 0},
	"mitigation": {"overload policy", 0},
	"noticer":    {"status controller", 0},
	"omitted":    {"truncated", 0},
	"proven":     {"confirmed", 0},
	"puppet":     {"fake manager", 0},
	"rests":      {"are in quarantine, or reserved", 0},
	"resting":    {"in quarantine", 0},
	"rested":     {"no longer in quarantine", 0},
	"cling":      {"still held", 0},
	"clings":     {"is still held", 0},
	"shortcut":   {"endpoint index", 0},
	"shortcuts":  {"endpoint index", 0},
	"shelf":      {"program cache", 0},
	"spilled":    {"overflow", 0},
	"stranger":   {"unauthenticated client", 0},
	"tape":       {"capture file", 0},
	"unhold":     {"dequeue", 0},
	"suspects":   {"drift detector", 0},
	"tenancy":    {"a tenant's VIPs", 0},
	"talker":     {"heavy hitter", 0},
	"talkers":    {"heavy hitters", 0},
}

var (
	wordsOfCamelCase = regexp.MustCompile(`[A-Z]+(?:[a-z0-9]+)?|[a-z0-9]+`)
	namesInC         = regexp.MustCompile(`(?m)^(?:[a-z_][\w ]*\b(?:struct|enum) |(?:struct|enum) )(\w+) \{|\b(\w+)\(|\} (\w+) SEC|^\t([A-Z][A-Z0-9_]+)\b`)
	headings         = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// Names say what a reader can search for.
func TestNamesAreOfTheField(t *testing.T) {
	found := map[string][]string{}
	for _, path := range files(t, ".go", ".h", ".c", ".md") {
		if path == "vocabulary_test.go" {
			continue
		}
		for name := range namesIn(t, path) {
			for _, word := range wordsOfCamelCase.FindAllString(strings.ReplaceAll(name, "_", " "), -1) {
				word = strings.ToLower(word)
				if _, ok := banned[word]; ok {
					found[word] = append(found[word], path+": "+name)
				}
			}
		}
	}
	for word, b := range banned {
		switch n := len(found[word]); {
		case n > b.names:
			t.Errorf("%q is no word of the field, %s is: %d names have it, %d are known: %s", word, b.instead, n, b.names, strings.Join(found[word], ", "))
		case n < b.names:
			t.Errorf("%d names have %q, fewer than the %d that are known: write the new number down", n, word, b.names)
		}
	}
}

// namesIn are the names that a file declares, its own among them; of a page the headings.
func namesIn(t *testing.T, path string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	switch filepath.Ext(path) {
	case ".go":
		names[strings.TrimSuffix(filepath.Base(path), ".go")] = true
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch d := n.(type) {
			case *ast.FuncDecl:
				names[d.Name.Name] = true
			case *ast.TypeSpec:
				names[d.Name.Name] = true
			case *ast.Field:
				for _, name := range d.Names {
					names[name.Name] = true
				}
			case *ast.ValueSpec:
				for _, name := range d.Names {
					names[name.Name] = true
				}
			}
			return true
		})
	case ".md":
		for _, match := range headings.FindAllStringSubmatch(read(t, path), -1) {
			names[match[1]] = true
		}
	default:
		for _, match := range namesInC.FindAllStringSubmatch(read(t, path), -1) {
			for _, name := range match[1:] {
				names[name] = true
			}
		}
	}
	return names
}
