package mux

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/trace"
)

// TestVerifier records how much of its budget of a million instructions the verifier walked,
// and fails long before it is used up. The programs' knobs follow from the tables' sizes and from what a trace is for.
func TestVerifier(t *testing.T) {
	standard, err := Config{}.sizes()
	if err != nil {
		t.Fatal(err)
	}
	for name, sizes := range map[string]bpf.Sizes{"small": testSizes, "standard": standard} {
		t.Run(name, func(t *testing.T) { checkVerifier(t, sizes) })
	}
}

// Budgets of the programs, and of the one that traces besides.
const budget, tracedBudget = 400_000, 500_000

func checkVerifier(t *testing.T, sizes bpf.Sizes) {
	l := loadNew(t, sizes)
	defer l.Tables.Close()
	defer l.Objects.Programs.Close()
	checkWalk(t, l.Program, budget)
	for row := range l.SlowpathProgs.MaxEntries() {
		var step *ebpf.Program
		if err := l.SlowpathProgs.Lookup(row, &step); errors.Is(err, ebpf.ErrKeyNotExist) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		checkWalk(t, step, budget)
		_ = step.Close()
	}
	for _, mode := range []bpf.MuxTraceMode{bpf.MuxTraceModeTRACE_EXPLAIN, bpf.MuxTraceModeTRACE_CAPTURE} {
		traced, err := trace.Spec{Mode: mode, SnapLength: 64, Buffer: trace.SmallestBuffer}.Load(sizes, &l.Tables)
		if err != nil {
			t.Fatal(err)
		}
		checkWalk(t, traced.Program, tracedBudget)
		_ = traced.Close()
	}
}

func checkWalk(t *testing.T, p *ebpf.Program, budget uint32) {
	t.Helper()
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	walked, ok := info.VerifiedInstructions()
	if !ok {
		t.Fatal("the kernel does not tell how many instructions the verifier walked")
	}
	t.Logf("of %s the verifier walked %d instructions", info.Name, walked)
	if walked > budget {
		t.Errorf("of %s the verifier walked %d instructions, want at most %d", info.Name, walked, budget)
	}
}
