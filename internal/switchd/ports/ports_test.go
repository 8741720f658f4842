package ports

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/hardware/fake"
)

// step has the watch look once more, two seconds later.
func step(t *testing.T, w *Watch) {
	t.Helper()
	time.Sleep(2 * time.Second)
	w.look(t.Context())
}

func TestRatesAndErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sw, news := fake.New(fake.Limits{}), 0
		w := New(sw.Open(), 2*time.Second, func() { news++ }, slog.New(slog.DiscardHandler))
		port := hardware.Port{Name: "eth1", Up: true, MbitPerS: 100_000, Received: 1 << 40, Sent: 5000, Errors: 7}
		sw.SetPorts(port)
		step(t, w)
		want := func(received, sent, errors uint64, looks int) {
			t.Helper()
			all, warnings := w.Report()
			if len(all) != 1 || len(warnings) != 0 {
				t.Fatalf("report %v, %q", all, warnings)
			}
			if p := all[0]; p.GetReceivedBytesPerS() != received || p.GetSentBytesPerS() != sent || p.GetErrors() != errors || news != looks {
				t.Errorf("%v, told %d times; want %d received, %d sent, %d errors, told %d times", p, news, received, sent, errors, looks)
			}
		}
		want(0, 0, 0, 1) // errors of before the daemon's start are not counted
		port.Received, port.Sent, port.Errors = port.Received+2000, port.Sent+1_000_000, 9
		sw.SetPorts(port)
		step(t, w)
		want(1000, 500_000, 2, 1)
		port.Received, port.Sent, port.Errors, port.Up = 400, 0, 1, false // its counters began anew
		sw.SetPorts(port)
		step(t, w)
		want(200, 0, 3, 2)
		port.Neighbour, port.NeighbourPort = "core-1\x1b[2J\n", strings.Repeat("\xff", 1<<20)
		sw.SetPorts(port)
		step(t, w)
		want(0, 0, 3, 2) // whoever is at the other end does not set the pace of reports
		if all, _ := w.Report(); all[0].GetNeighbour() != "core-1?[2J?" || len(all[0].GetNeighbourPort()) != 255 {
			t.Errorf("the neighbour is told as %.300q", all[0])
		}
		port.Neighbour, port.NeighbourPort = "", ""
		sw.SetPorts(port)
		step(t, w)
		if all, _ := w.Report(); all[0].GetUp() || all[0].GetNeighbour() == "" {
			t.Errorf("who was at the other end is forgotten: %v", all[0])
		}
		port.Up = true
		sw.SetPorts(port)
		step(t, w)
		if all, _ := w.Report(); all[0].GetNeighbour() != "" {
			t.Errorf("who is at the other end is not heard yet: %v", all[0])
		}
		if all, _ := w.Report(); all[0].GetChanges() != 2 {
			t.Errorf("it went down and up: %v", all[0])
		}
	})
}

func TestASwitchThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sw := fake.New(fake.Limits{})
		w := New(sw.Open(), 2*time.Second, func() {}, slog.New(slog.DiscardHandler))
		sw.SetPorts(hardware.Port{Name: "eth1", Up: true})
		step(t, w)
		sw.SetPorts(hardware.Port{Name: "eth1", Up: true, Errors: 5})
		step(t, w)
		sw.Hang(true)
		step(t, w)
		if all, warnings := w.Report(); len(all) != 1 || len(warnings) != 1 {
			t.Errorf("after one look that failed: %v, %q", all, warnings)
		}
		step(t, w)
		step(t, w)
		if all, warnings := w.Report(); len(all) != 0 || len(warnings) != 1 {
			t.Errorf("long after: %v, %q", all, warnings)
		}
		sw.Hang(false)
		step(t, w)
		if all, warnings := w.Report(); len(all) != 1 || all[0].GetErrors() != 5 || len(warnings) != 0 {
			t.Errorf("it answers again: %v, %q", all, warnings)
		}
	})
}

func TestPortsAreBounded(t *testing.T) {
	many := make([]hardware.Port, hardware.MaxPorts+1)
	for i := range many {
		many[i].Name = strings.Repeat("x", i+1)
	}
	ports := hardware.NewPorts(many, errors.New("one").Error())
	if len(ports.All) != hardware.MaxPorts || len(ports.Warnings) != 2 {
		t.Errorf("%d ports, warnings %q", len(ports.All), ports.Warnings)
	}
}
