package mux

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/trace"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/look"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/testkit/progcache"
)

// dump is every byte of every table that packets read or write.
func dump(t *testing.T, d *Datapath) map[string]string {
	t.Helper()
	all, err := progcache.Dump(d.programs.Program)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestExplainSaysWhatTheProgramDoes explains every packet of the packet tests, then runs it: the verdict
// and the bytes are the same, and only the run changes a table.
func TestExplainSaysWhatTheProgramDoes(t *testing.T) {
	shared := newFilled(t, world()...)
	for _, c := range slices.Concat(forwardCases(), passCases(), dropCases(), snatCases(), sourceCases()) {
		t.Run(c.name, func(t *testing.T) {
			d := shared
			if c.change != nil {
				d = newFilled(t, world()...)
				c.change(t, d)
			}
			frame := c.packet.Frame()
			if c.damage != nil {
				frame = c.damage(frame)
			}
			if len(frame) < 14 || c.meta > 0 {
				t.Skip("no test run without a context takes it")
			}
			explainAndRun(t, d, frame)
		})
	}
}

func explainAndRun(t *testing.T, d *Datapath, frame []byte) {
	t.Helper()
	tables := dump(t, d)
	got, err := d.Explain(frame)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(tables, dump(t, d)) {
		t.Error("to explain a packet changed a table")
	}
	before := verdicts(t, d)
	action, out := run(t, d, frame)
	want := difference(before, verdicts(t, d))
	if want[got.Verdict] != 1 {
		t.Errorf("explained as %s, counted as %v", got.Verdict, want)
	}
	if name := trace.ActionName(action, got.Verdict); name != got.Action {
		t.Errorf("explained action is %s, the program's %s", got.Action, name)
	}
	if !bytes.Equal(out, got.Frame) {
		t.Errorf("explained bytes are\n%x\nthe program's\n%x", got.Frame, out)
	}
}

func TestExplanationNamesTheParts(t *testing.T) {
	d := newFilled(t, newEndpoint(vip4, model.TCP, tunnel4, "10.0.0.2"))
	key := newEndpoint(vip4, model.TCP).Key
	explain := func(p pkt.Packet) look.Explanation {
		t.Helper()
		e, err := d.Explain(p.Frame())
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	equal := func(got, want look.Explanation) {
		t.Helper()
		options := []cmp.Option{
			cmpopts.IgnoreFields(look.Explanation{}, "Frame", "Hash", "Bucket"), cmpopts.EquateComparable(netip.Addr{}, model.EndpointKey{}),
		}
		if diff := cmp.Diff(want, got, options...); diff != "" {
			t.Errorf("explanation (-want +got):\n%s", diff)
		}
	}
	syn := explain(pkt.TCP(client4, vip4, pkt.SYN))
	want := look.Explanation{
		Verdict: "forward_syn", Action: "transmit", Layer: "bucket", Endpoint: &key, Hashed: true, Buckets: 256,
		Slot: model.Slot(syn.Bucket%2 + 1),
	}
	want.Tunnel = netip.MustParseAddr([]string{tunnel4, "10.0.0.2"}[syn.Bucket%2])
	equal(syn, want)
	want.Verdict = "forward_bucket"
	equal(explain(pkt.TCP(client4, vip4, pkt.ACK)), want)
	run(t, d, pkt.TCP(client4, vip4, pkt.ACK).Frame())
	want.Verdict, want.Layer = "forward_flow", "flow table"
	equal(explain(pkt.TCP(client4, vip4, pkt.ACK)), want)
	equal(explain(pkt.TCP(client4, "203.0.113.10:22", pkt.SYN)), look.Explanation{Verdict: "pass_no_endpoint", Action: "pass"})
}

// captured runs a capture beside do, and returns what it handed on.
func captured(t *testing.T, d *Datapath, c look.Capture, do func()) (packets []look.CapturedPacket, lost uint64, err error) {
	t.Helper()
	began, ended := make(chan struct{}), make(chan error, 1)
	first := true
	go func() {
		ended <- d.Capture(t.Context(), c, func(more []look.CapturedPacket, n uint64) error {
			if packets, lost = append(packets, more...), n; first {
				first = false
				close(began)
			}
			return nil
		})
	}()
	select {
	case <-began:
		do()
		err = <-ended
	case err = <-ended:
	}
	return packets, lost, err
}

// TestCaptureUnderTraffic swaps the program back and forth while packets pass, and loses none.
func TestCaptureUnderTraffic(t *testing.T) {
	p := newPlace(t)
	d := p.mustOpen(t)
	defer d.Close()
	fill(t, d, tunnel4)
	id := programID(t, d)
	f := p.traffic(t)
	f.more(tunnel4, 20)
	filter := look.CaptureFilter{Client: netip.MustParsePrefix("198.51.100.0/24"), Port: 80, Protocol: "TCP", Verdict: "forward"}
	packets, lost, err := captured(t, d, look.Capture{Filter: filter, Count: 100, Duration: time.Minute, SnapLength: 48}, func() {
		if got := programID(t, d); got == id {
			t.Error("the program that captures is not attached")
		}
		err := d.Capture(t.Context(), look.Capture{}, nil)
		if err == nil || !strings.Contains(err.Error(), "another capture is under way") {
			t.Errorf("a second capture: error %v", err)
		}
	})
	if err != nil || lost != 0 || len(packets) != 100 {
		t.Fatalf("captured %d packets, lost %d, error %v", len(packets), lost, err)
	}
	if got := programID(t, d); got != id {
		t.Errorf("program %d is attached afterwards, want %d", got, id)
	}
	for i, packet := range packets {
		wantLength := 14 + 20 + 20 + 12
		if packet.Out {
			wantLength += 20
		}
		wrong := packet.Out != (i%2 == 1) || packet.Length != wantLength || len(packet.Frame) != 48 ||
			!strings.HasPrefix(packet.Verdict, "forward_") || !strings.HasSuffix(packet.Comment, "slot 1, tunnel 10.0.0.1") ||
			time.Since(packet.Time).Abs() > time.Minute || packet.Frame[14+9] != map[bool]byte{false: 6, true: 4}[packet.Out]
		if wrong {
			t.Fatalf("packet %d is %+v", i, packet)
		}
	}
	f.more(tunnel4, 20)
	f.end(tunnel4)
}

func TestCaptureEnds(t *testing.T) {
	p := newPlace(t)
	d := p.mustOpen(t)
	defer d.Close()
	fill(t, d, tunnel4)
	id := programID(t, d)
	f := p.traffic(t)
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		capture look.Capture
		to      error
		cancel  bool
		want    string
	}{
		"by its time":        {capture: look.Capture{Count: 1 << 20, Duration: 100 * time.Millisecond, SnapLength: 64}},
		"with its caller":    {capture: look.Capture{Count: 1 << 20, Duration: time.Minute, SnapLength: 64}, cancel: true},
		"when it is refused": {capture: look.Capture{Count: 1 << 20, Duration: time.Minute, SnapLength: 64}, to: refused, want: "refused"},
		"by a verdict that is none": {
			capture: look.Capture{Filter: look.CaptureFilter{Verdict: "frob"}, Count: 1, Duration: time.Minute, SnapLength: 64},
			want:    `no verdict begins with "frob": there are drop_`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			err := d.Capture(ctx, c.capture, func([]look.CapturedPacket, uint64) error {
				if c.cancel {
					cancel()
				}
				return c.to
			})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error is %v, want %q", err, c.want)
			}
			if got := programID(t, d); got != id {
				t.Errorf("program %d is attached afterwards, want %d", got, id)
			}
		})
	}
	f.more(tunnel4, 20)
	f.end(tunnel4)
}

// TestCaptureFilters runs packets by test runs through the program that copies.
func TestCaptureFilters(t *testing.T) {
	d := newFilled(t, world()...)
	tcp, udp6 := pkt.TCP(client4, vip4, pkt.SYN), pkt.UDP(client6, vip6)
	other := pkt.TCP(client4, "203.0.113.11:80", pkt.SYN)
	ping := pkt.ICMP("198.51.100.7", "203.0.113.10")
	all := []pkt.Packet{tcp, udp6, other, ping}
	l, err := trace.Spec{SnapLength: 64, Buffer: trace.SmallestBuffer}.Load(d.sizes, &d.tables)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	prefix := netip.MustParsePrefix
	for name, c := range map[string]struct {
		filter look.CaptureFilter
		want   []bool // of all
	}{
		"everything":           {look.CaptureFilter{}, []bool{true, true, true, true}},
		"client":               {look.CaptureFilter{Client: prefix("198.51.100.7/32")}, []bool{true, false, true, true}},
		"client's prefix":      {look.CaptureFilter{Client: prefix("2001:db8::/32")}, []bool{false, true, false, false}},
		"another client":       {look.CaptureFilter{Client: prefix("198.51.100.6/32")}, []bool{false, false, false, false}},
		"all of a family":      {look.CaptureFilter{Client: prefix("0.0.0.0/0")}, []bool{true, false, true, true}},
		"client's port":        {look.CaptureFilter{ClientPort: 40000}, []bool{true, true, true, false}},
		"VIP":                  {look.CaptureFilter{VIP: netip.MustParseAddr("203.0.113.10")}, []bool{true, false, false, true}},
		"port":                 {look.CaptureFilter{Port: 80}, []bool{true, true, true, false}},
		"UDP":                  {look.CaptureFilter{Protocol: "UDP"}, []bool{false, true, false, false}},
		"ICMP":                 {look.CaptureFilter{Protocol: "ICMP"}, []bool{false, false, false, true}},
		"verdict":              {look.CaptureFilter{Verdict: "drop_no_backend"}, []bool{false, false, true, false}},
		"verdicts":             {look.CaptureFilter{Verdict: "forward"}, []bool{true, true, false, false}},
		"verdict and protocol": {look.CaptureFilter{Verdict: "forward", Protocol: "TCP"}, []bool{true, false, false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			filter, err := d.Filter(c.filter)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Filter.Put(uint32(0), filter); err != nil {
				t.Fatal(err)
			}
			for i, p := range all {
				if got := copies(t, l, p.Frame()); got != c.want[i] {
					t.Errorf("packet %d is copied: %t, want %t", i, got, c.want[i])
				}
			}
		})
	}
}

// copies says whether the program copies the frame: a ring that is made full by it loses the next.
func copies(t *testing.T, l *trace.Program, frame []byte) bool {
	t.Helper()
	var before, after uint64
	lost := func(to *uint64) {
		if err := l.Lost.Lookup(uint32(0), to); err != nil {
			t.Fatal(err)
		}
	}
	lost(&before)
	for range 1 + trace.SmallestBuffer/128 { // more than there is room for
		if _, err := l.Program.Run(&ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+trace.Growth)}); err != nil {
			t.Fatal(err)
		}
	}
	lost(&after)
	return after > before
}

// The programs are told apart by their names though they share their tables, so that a restart does not
// take one for the other; and two of the same instructions by their constants.
func TestProgramsAreToldApart(t *testing.T) {
	d := newFilled(t, world()...)
	distinct := map[string]bool{}
	add := func(p *ebpf.Program) {
		t.Helper()
		name, err := nameOf(p)
		if err != nil {
			t.Fatal(err)
		}
		distinct[name] = true
	}
	add(d.programs.Program)
	add(newUnattached(t, testSizes).programs.Program) // the same
	larger := testSizes
	larger.FlowSets *= 2
	add(newUnattached(t, larger).programs.Program)
	l, err := trace.Spec{Mode: bpf.MuxTraceModeTRACE_CAPTURE, SnapLength: 64, Buffer: trace.SmallestBuffer}.Load(d.sizes, &d.tables)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	add(l.Program)
	if len(distinct) != 3 {
		t.Errorf("the names are %v, want 3", distinct)
	}
}
