package mux

import (
	"testing"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// The slow path programs are programs of a table that the kernel empties with its last holder: they outlive the
// process as the program does, and come with another program.
func TestSlowPathOutlivesTheProcess(t *testing.T) {
	p := newPlace(t)
	d := p.mustOpen(t)
	defer func() { _ = d.Close() }()
	if err := d.SetSettings(testSettings()); err != nil {
		t.Fatal(err)
	}
	e := newEndpoint(vip4, model.TCP, tunnel4)
	e.Ping = true
	if err := d.Replace([]model.MuxEndpoint{e}); err != nil {
		t.Fatal(err)
	}
	answers := func(when string) {
		t.Helper()
		before := verdicts(t, d)["reply_echo"]
		run(t, d, pkt.ICMP("198.51.100.7", "203.0.113.10").Frame())
		if verdicts(t, d)["reply_echo"] != before+1 {
			t.Errorf("%s no ping is answered: %v", when, verdicts(t, d))
		}
	}
	reopen := func() {
		t.Helper()
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		d = p.mustOpen(t)
	}
	answers("at first")
	id := programID(t, d)
	reopen()
	if programID(t, d) != id {
		t.Error("a start of the same version attached another program")
	}
	answers("after a restart")
	if err := d.replacePrograms(); err != nil {
		t.Fatal(err)
	}
	answers("with programs replaced")
	reopen()
	answers("after a restart with programs replaced")
}
