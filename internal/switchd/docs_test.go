package switchd

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// FRR takes the configuration that the page shows.
func TestConfigurationOfTheRouterIsOne(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations/switches.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```text\n(bgp route-map .*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatal("the page has no configuration of a router")
	}
	dir, err := os.MkdirTemp("", "switches-page-") // bgpd reads it as another user
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "bgpd.conf")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(file, found[1], 0o644)); err != nil {
		t.Fatal(err)
	}
	// It ends well whatever it reads, and says what it does not understand.
	if out, err := exec.Command("/usr/lib/frr/bgpd", "-C", "-f", file).CombinedOutput(); err != nil || bytes.Contains(out, []byte("on config line")) {
		t.Errorf("%v: %s", err, out)
	}
}
