package agent

import "testing"

// TestVerifier records how much of its budget of a million instructions the verifier walked,
// and fails long before it is used up.
func TestVerifier(t *testing.T) {
	const budget = 120_000
	for _, program := range loads.Take(t, "", func() *loaded { return loadNew(t) }).programs {
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

// TestProbe runs on a kernel that has what the programs need.
func TestProbe(t *testing.T) {
	if err := probeChecksumHelper(); err != nil {
		t.Error(err)
	}
}
