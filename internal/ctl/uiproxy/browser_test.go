package uiproxy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A browser is opened by a file that nobody else can read: the secret is no argument of a program.
func TestBrowserIsOpenedByAFile(t *testing.T) {
	dir := t.TempDir()
	said := filepath.Join(dir, "said")
	opener := "#!/bin/sh\n{ echo \"$@\"; stat -c %a \"$1\"; cat \"$1\"; } >" + said + ".part && mv " + said + ".part " + said + "\n"
	if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte(opener), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	if file, err := openBrowser("http://x", func(string) string { return "" }); err != errNoDisplay || file != "" { //nolint:errorlint // it is itself
		t.Errorf("without a display: %q, %v", file, err)
	}
	file, err := openBrowser("http://x.localhost:1/open/SECRET", func(string) string { return ":0" })
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(file)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(said)
		if err != nil && time.Now().Before(deadline) {
			continue
		}
		lines := strings.SplitN(string(text), "\n", 3)
		if len(lines) < 3 || strings.Contains(lines[0], "SECRET") || lines[1] != "600" || !strings.Contains(lines[2], "url=http://x.localhost:1/open/SECRET") {
			t.Errorf("a browser was opened by %q, %v", text, err)
		}
		return
	}
}
