package agent

import (
	"bytes"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/pkt"
)

// FuzzPrograms gives any bytes to the programs. What passes must be untouched; what is delivered
// or sent back must have lost at most its outer header; what is dropped says why.
func FuzzPrograms(f *testing.F) {
	for _, c := range packetCases() {
		for _, s := range c.steps {
			f.Add(s.in)
		}
	}
	r := newRig(f)
	// A session for the replies.
	r.run("from_uplink", pkt.TCP(client4, vip4, pkt.SYN).Inside(outer(native4)).Frame(), nil)
	programs := []string{"from_uplink", "to_uplink", "from_workload"}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < 14 || len(frame) > 3000 {
			t.Skip("the test run takes no such frame")
		}
		for _, program := range programs {
			r.t = t
			if r.refuses(program, frame) {
				continue
			}
			r.judge(program, frame)
		}
	})
}

// refuses says whether the kernel's test run won't even start with the frame: it wants a whole
// IP header where the EtherType promises one.
func (r *rig) refuses(program string, frame []byte) bool {
	r.t.Helper()
	_, err := r.program(program).Run(&ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)})
	return errors.Is(err, syscall.EINVAL)
}

func (r *rig) judge(program string, frame []byte) {
	r.t.Helper()
	got := r.run(program, frame, nil)
	if want := actionOf(got.verdict); got.action != want {
		r.t.Errorf("%s: %s did %d, not %d", program, got.verdict, int32(got.action), int32(want))
	}
	lost := len(frame) - len(got.frame)
	switch {
	case strings.HasPrefix(got.verdict, "pass_"), strings.HasPrefix(got.verdict, "drop_"):
		if !bytes.Equal(got.frame, frame) {
			r.t.Errorf("%s: %s changed the frame", program, got.verdict)
		}
	case strings.HasPrefix(got.verdict, "deliver_"):
		if lost < 20 || lost > 60+udpHeader+gueHeader+24 {
			r.t.Errorf("%s: %s removed %d bytes", program, got.verdict, lost)
		}
	case strings.HasPrefix(got.verdict, "chain_"):
		if lost < -8 || lost > 160 { // options of the old header do not go on
			r.t.Errorf("%s: %s removed %d bytes", program, got.verdict, lost)
		}
	case strings.HasPrefix(got.verdict, "reply_"):
		if lost != 0 {
			r.t.Errorf("%s: %s removed %d bytes", program, got.verdict, lost)
		}
	default:
		r.t.Errorf("%s: no verdict counted", program)
	}
}
