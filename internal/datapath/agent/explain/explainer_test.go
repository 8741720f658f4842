package explain

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
)

// A test run does not do what a program returns, but a helper that copies a packet to an interface sends at once.
func TestNothingIsSent(t *testing.T) {
	spec, err := bpf.LoadAgent()
	if err != nil {
		t.Fatal(err)
	}
	sends := func(p *ebpf.ProgramSpec) (n int) {
		for _, in := range p.Instructions {
			if in.IsBuiltinCall() && asm.BuiltinFunc(in.Constant) == asm.FnCloneRedirect {
				n++
			}
		}
		return n
	}
	before, after := 0, 0
	for _, p := range spec.Programs {
		before += sends(p)
		sendNothing(p)
		after += sends(p)
	}
	if before == 0 || after != 0 {
		t.Errorf("%d calls send a copy, %d are left", before, after)
	}
}
