package switchd

import (
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
	found := regexp.MustCompile("(?s)```text\n(router bgp .*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatal("the page has no configuration of a router")
	}
	file := filepath.Join(t.TempDir(), "bgpd.conf")
	if err := os.WriteFile(file, found[1], 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("/usr/lib/frr/bgpd", "-C", "-f", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
