package weir

import (
	"os"
	"regexp"
	"strings"
	"testing"
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
