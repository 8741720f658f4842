package trust

import (
	"os"
	"path/filepath"
	"testing"
)

// It is known before there is a credential whether its file can be written, and trying leaves nothing.
func TestCanWriteFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "admin.yaml")
	if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, can := range map[string]bool{
		filepath.Join(dir, "new.yaml"): true, file: true, filepath.Join(dir, "none", "admin.yaml"): false, dir: false,
	} {
		if err := CanWriteFile(path); (err == nil) != can {
			t.Errorf("%s: %v", path, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left are %v, %v", left, err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "old" {
		t.Errorf("the file has %q, %v", text, err)
	}
}
