package weir

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// A row of the threat model is worth what it names: each test, function and file must be there.
func TestThreatsNameWhatIsThere(t *testing.T) {
	page := read(t, "docs/design/threats.md")
	var tests, sources strings.Builder
	for _, path := range files(t, ".go", ".h", ".c") {
		to := &sources
		if strings.HasSuffix(path, "_test.go") {
			to = &tests
		}
		to.WriteString(read(t, path))
	}
	inQuotes := regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(page, -1)
	if len(inQuotes) < 50 {
		t.Fatalf("the page names %d things", len(inQuotes))
	}
	for _, match := range inQuotes {
		name := match[1]
		function := strings.TrimSuffix(name, "()")
		_, missing := os.Stat(name)
		switch {
		case strings.HasPrefix(name, "Test"):
			if !strings.Contains(tests.String(), "func "+name+"(t *testing.T)") {
				t.Errorf("there is no test %s", name)
			}
		case strings.HasPrefix(name, "bpf/") || strings.HasPrefix(name, "internal/"):
			if missing != nil {
				t.Errorf("there is no %s", name)
			}
		case function != name:
			if !strings.Contains(sources.String(), " "+function+"(") {
				t.Errorf("there is no function %s", name)
			}
		}
	}
}

// The book of decisions holds choices between real alternatives, each in the same form, and an index of them all.
func TestDecisionsAreABook(t *testing.T) {
	const most = 50
	text := read(t, "docs/decisions.md")
	index, book, _ := strings.Cut(text, "\n## ")
	decisions := strings.Split(book, "\n### ")[1:]
	if len(decisions) > most {
		t.Errorf("the book has %d decisions, more than %d: what explains one mechanism stands in its design page", len(decisions), most)
	}
	listed := regexp.MustCompile(`\]\(#([^)]*)\)`).FindAllStringSubmatch(index, -1)
	if len(listed) != len(decisions) {
		t.Errorf("the index lists %d decisions of %d", len(listed), len(decisions))
	}
	for _, decision := range decisions {
		title, body, _ := strings.Cut(decision, "\n")
		if !strings.Contains(index, "(#"+anchor(title)+")") {
			t.Errorf("the index does not list %q", title)
		}
		for _, part := range []string{"**Context.**", "**Decision.**", "**Alternatives.**", "**Consequence.**"} {
			if strings.Count(body, "\n"+part) != 1 {
				t.Errorf("%q must have one %s", title, part)
			}
		}
	}
}

// anchor is what GitHub makes of a heading.
func anchor(title string) string {
	return strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(title), ""), " ", "-")
}

// A link to a heading leads to one that is there.
func TestAnchorsInDocumentsLead(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:\s]*)#([^)\s]+)\)`)
	headings := regexp.MustCompile(`(?m)^#+ (.*)$`)
	for _, path := range files(t, ".md") {
		for _, found := range link.FindAllStringSubmatch(read(t, path), -1) {
			target := path
			if found[1] != "" {
				target = filepath.Join(filepath.Dir(path), found[1])
			}
			if !strings.HasSuffix(target, ".md") {
				continue
			}
			there := slices.ContainsFunc(headings.FindAllStringSubmatch(read(t, target), -1), func(h []string) bool {
				return anchor(h[1]) == found[2]
			})
			if !there {
				t.Errorf("%s links to #%s, which %s does not have", path, found[2], target)
			}
		}
	}
}

// Prose is read beside code: its lines are as short. Tables, code and headings may be longer.
func TestProseIsWrapped(t *testing.T) {
	const columns = 120
	for _, path := range files(t, ".md") {
		if path == "CHANGELOG.md" || path == "docs/reference/cli.md" || strings.HasPrefix(path, "bpf/") {
			continue // written elsewhere
		}
		code := false
		for i, line := range strings.Split(read(t, path), "\n") {
			text := strings.TrimSpace(line)
			if strings.HasPrefix(text, "```") {
				code = !code
			}
			if code || strings.HasPrefix(text, "|") || strings.HasPrefix(text, "#") || strings.HasPrefix(text, "<") {
				continue
			}
			if n := utf8.RuneCountInString(line); n > columns && strings.Contains(text, " ") {
				t.Errorf("%s:%d has %d columns, more than %d", path, i+1, n, columns)
			}
		}
	}
}

var quoted = regexp.MustCompile("`([^`\n]+)`")

// The table of layers has every package of internal/, and none that is not there.
func TestPackagesAreInTheArchitecture(t *testing.T) {
	_, layers, _ := strings.Cut(read(t, "docs/architecture.md"), "\n## Layers\n")
	layers, _, _ = strings.Cut(layers, "\n## ")
	named := map[string]bool{}
	for row := range strings.Lines(layers) {
		if cells := strings.Split(row, "|"); len(cells) > 3 {
			for _, name := range quoted.FindAllStringSubmatch(cells[2], -1) {
				named[name[1]] = true
			}
		}
	}
	for _, path := range files(t, ".go") {
		dir, ok := strings.CutPrefix(filepath.Dir(path), "internal/")
		if ok && !named[dir] && !strings.Contains(dir, "testdata") {
			t.Errorf("the table of layers in docs/architecture.md lacks `%s`", dir)
			named[dir] = true
		}
	}
	for name := range named {
		if _, err := os.Stat("internal/" + name); err != nil {
			t.Errorf("the table of layers in docs/architecture.md has `%s`, which is not there", name)
		}
	}
}

// Who is sent to a file to change something finds it.
func TestPlacesToChangeAreThere(t *testing.T) {
	_, table, found := strings.Cut(read(t, "docs/architecture.md"), "\n## Where do I change ...?\n")
	table, _, _ = strings.Cut(table, "\n## ")
	paths := quoted.FindAllStringSubmatch(table, -1)
	if !found || len(paths) < 40 {
		t.Fatalf("docs/architecture.md names %d places", len(paths))
	}
	for _, path := range paths {
		if _, err := os.Stat(path[1]); err != nil && strings.Contains(path[1], "/") {
			t.Errorf("docs/architecture.md sends who changes something to %s, which is not there", path[1])
		}
	}
}

// A design page is read in ten minutes, and each in the same order. The threat model has a form of its own.
func TestDesignPagesHaveTheirForm(t *testing.T) {
	const most = 1250 // words of prose and tables
	word := regexp.MustCompile(`\w`)
	target := regexp.MustCompile(`\]\([^)]*\)`)
	for _, path := range files(t, ".md") {
		if !strings.HasPrefix(path, "docs/design/") || path == "docs/design/threats.md" {
			continue
		}
		text := read(t, path)
		at := 0
		for _, part := range []string{"Purpose", "Terms", "Flow", "Invariants", "Failure modes", "What a reviewer must refuse"} {
			i := strings.Index(text[at:], "\n## "+part+"\n")
			if i < 0 {
				t.Errorf("%s lacks %q, or has it in another order", path, part)
				continue
			}
			at += i
		}
		words := 0
		for w := range strings.FieldsSeq(target.ReplaceAllString(codeFence.ReplaceAllString(text, ""), "]")) {
			if word.MatchString(w) {
				words++
			}
		}
		if words > most {
			t.Errorf("%s has %d words, more than %d: what explains one change belongs into its commit", path, words, most)
		}
	}
}

// The read-me's manifest is an example, so that it is applied in the lab.
func TestManifestOfTheReadmeIsAnExample(t *testing.T) {
	if !strings.Contains(read(t, "README.md"), "```yaml\n"+read(t, "examples/web.yaml")+"```\n") {
		t.Error("README.md does not show examples/web.yaml")
	}
}

// The places that the glossary names are there.
func TestGlossaryNamesWhatIsThere(t *testing.T) {
	words := 0
	for row := range strings.Lines(read(t, "docs/glossary.md")) {
		cells := strings.Split(row, "|")
		if len(cells) != 6 {
			continue
		}
		words++
		for _, place := range quoted.FindAllStringSubmatch(cells[4], -1) {
			if _, err := os.Stat(place[1]); err != nil && strings.Contains(place[1], "/") {
				t.Errorf("the glossary sends to %s, which is not there", place[1])
			}
		}
	}
	if words < 50 {
		t.Errorf("the glossary has %d words", words)
	}
}

// A name of the code that a page on design quotes is a name of the code: renaming one mends its pages.
func TestNamesInDesignPagesAreThere(t *testing.T) {
	var sources strings.Builder
	for _, path := range files(t, ".go", ".h", ".c", ".proto", ".yaml") {
		sources.WriteString(strings.ToLower(read(t, path)))
	}
	code := sources.String()
	name := regexp.MustCompile("`(?:[a-z]+\\.)?([a-z]+(?:_[a-z0-9]+)+|[A-Z][A-Za-z]+)(?:\\(\\))?`")
	for _, path := range files(t, ".md") {
		book := slices.Contains([]string{"docs/glossary.md", "docs/decisions.md", "docs/architecture.md"}, path)
		if !book && !strings.HasPrefix(path, "docs/design/") {
			continue
		}
		for _, found := range name.FindAllStringSubmatch(codeFence.ReplaceAllString(read(t, path), ""), -1) {
			if !strings.Contains(code, strings.ToLower(found[1])) {
				t.Errorf("%s names %s, which no source has", path, found[1])
			}
		}
	}
}
