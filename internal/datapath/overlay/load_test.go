package overlay

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"
)

// TestMain takes the programs from a file when it is told so: test/mutate has some with a fault.
func TestMain(m *testing.M) {
	if path := os.Getenv("WEIR_TEST_OBJECT"); path != "" {
		object, err := os.ReadFile(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_OverlayBytes = object
	}
	os.Exit(m.Run())
}

// TestVerifier records how much of its budget of a million instructions the verifier walked, and fails long before it is
// used up.
func TestVerifier(t *testing.T) {
	const budget = 100_000
	objects := newRig(t, families()["v4 over v4"]).objects
	for _, program := range []*ebpf.Program{objects.FromUnderlay, objects.ToUnderlay, objects.FromServer} {
		info, err := program.Info()
		if err != nil {
			t.Fatal(err)
		}
		walked, ok := info.VerifiedInstructions()
		if !ok {
			t.Fatal("the kernel does not tell how many instructions the verifier walked")
		}
		t.Logf("%s: the verifier walked %d instructions", info.Name, walked)
		if walked > budget {
			t.Errorf("%s: the verifier walked %d instructions, want at most %d", info.Name, walked, budget)
		}
	}
}

func TestConfigsThatCanNotBe(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"sets":     func(c *Config) { c.Sets = 3 },
		"no sets":  func(c *Config) { c.Sets = 0 },
		"too many": func(c *Config) { c.Sets = 1 << 19 },
		"prefix":   func(c *Config) { c.Local4 = netip.MustParsePrefix("100.64.0.0/23") },
	} {
		config := testConfig
		change(&config)
		if d, err := Open(config); err == nil {
			t.Errorf("%s: opened", name)
			_ = d.Close()
		}
	}
}
