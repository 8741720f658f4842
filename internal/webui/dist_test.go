package webui

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write down of which sources dist was built: make ui does")

// What is committed in dist is what "make ui" made of the sources: their digests are written down when it is built. Neither
// needs Node to be compared.
func TestDistIsOfItsSources(t *testing.T) {
	const file = "testdata/built.sha256"
	sources := digest(t, "../../web", "node_modules", "e2e", "src/gen", "playwright.config.ts", "test-results")
	got := fmt.Sprintf("%s  web\n%s  dist\n", sources, digest(t, "dist"))
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("the page in internal/webui/dist is not built of the sources in web/: run make ui, and commit what it writes\ngot\n%swant\n%s", got, want)
	}
}

// digest is that of all files below a folder, with their names.
func digest(t *testing.T, folder string, but ...string) string {
	t.Helper()
	sum := sha256.New()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		for _, out := range but {
			if filepath.ToSlash(name) == out {
				if entry.IsDir() {
					return filepath.SkipDir
				}
				return nil
			}
		}
		if entry.IsDir() || strings.HasPrefix(entry.Name(), ".") {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s %d\n", filepath.ToSlash(name), len(data))
		sum.Write(data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
