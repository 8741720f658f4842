package trace

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model/look"
)

const (
	captureBuffer = 4 << 20               // bytes of copies that wait for us
	captureBatch  = 256                   // copies that are handed on at once
	capturePause  = 50 * time.Millisecond // how long copies wait for more of them
)

// Capture copies packets until its bounds or ctx end it. It hands on those that came since the last
// time, and how many were lost so far; an error of to ends it. Meanwhile a program that copies is attached
// in the place of the one that does not: both forward alike, and no packet meets neither. One at a time can; it waits
// for the end of one before whose ctx has ended.
func (t *Tracer) Capture(ctx context.Context, c look.Capture, to func(packets []look.CapturedPacket, lost uint64) error) error {
	end, err := t.capturing.begin(ctx)
	if err != nil {
		return fmt.Errorf("capture packets: %w", err)
	}
	defer end()
	if err := t.capture(ctx, c, to); err != nil {
		return fmt.Errorf("capture packets: %w", err)
	}
	return nil
}

func (t *Tracer) capture(ctx context.Context, c look.Capture, to func([]look.CapturedPacket, uint64) error) error {
	filter, err := t.Filter(c.Filter)
	if err != nil {
		return err
	}
	if err := t.Ready(); err != nil {
		return err
	}
	at := Spec{Mode: bpf.MuxTraceModeTRACE_CAPTURE, Filter: filter, SnapLength: c.SnapLength, Buffer: captureBuffer}
	l, err := at.Load(t.Sizes, t.Tables)
	if err != nil {
		return err
	}
	defer l.Close()
	reader, err := ringbuf.NewReader(l.Captured)
	if err != nil {
		return fmt.Errorf("read copies: %w", err)
	}
	defer reader.Close()
	copies := &tap{traces: t, tracer: l, reader: reader, snap: c.SnapLength, left: c.Count, to: to, wall: wallClock()}
	return copies.run(ctx, c.Duration)
}

// tap hands on what the program copies.
type tap struct {
	traces *Tracer
	tracer *Program
	reader *ringbuf.Reader
	snap   int
	left   int // copies, until it ends
	to     func([]look.CapturedPacket, uint64) error
	wall   time.Time // when CLOCK_MONOTONIC was 0

	record ringbuf.Record
	batch  []look.CapturedPacket
}

// run attaches the program that copies, and the other one again however it ends.
func (t *tap) run(ctx context.Context, duration time.Duration) (err error) {
	end := time.Now().Add(duration)
	attached := t.traces.Link()
	if attached == nil {
		return errors.New("the program is not attached")
	}
	if err := attached.Update(t.tracer.Program); err != nil {
		return fmt.Errorf("attach the program that copies: %w", err)
	}
	for err == nil && t.left > 0 && ctx.Err() == nil && time.Now().Before(end) {
		err = t.collect(time.Now().Add(capturePause))
	}
	if back := attached.Update(t.traces.Programs.Program); back != nil {
		err = errors.Join(err, fmt.Errorf("attach the program that does not copy: %w", back))
	}
	for more := true; err == nil && more && t.left > 0; more = len(t.batch) > 0 { // what came until then
		err = t.collect(time.Now())
	}
	return err
}

// collect hands on what comes until a time, or until it is enough for once.
func (t *tap) collect(until time.Time) error {
	t.batch = t.batch[:0]
	t.reader.SetDeadline(until)
	for len(t.batch) < captureBatch && t.left > 0 {
		err := t.reader.ReadInto(&t.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return fmt.Errorf("read copies: %w", err)
		}
		if err := t.add(t.record.RawSample); err != nil {
			return err
		}
	}
	var lost uint64
	if err := t.tracer.Lost.Lookup(uint32(0), &lost); err != nil {
		return fmt.Errorf("read how many copies were lost: %w", err)
	}
	return t.to(t.batch, lost)
}

// add takes a record: a packet as it came, and as it left if it did.
func (t *tap) add(raw []byte) error {
	note, frames, err := decodeTrace(raw)
	if err != nil {
		return err
	}
	e := t.traces.explanation(note)
	p := look.CapturedPacket{Time: t.wall.Add(time.Duration(note.Time)), Verdict: e.Verdict, Comment: Comment(e)}
	for out, length := range []uint32{note.LengthIn, note.LengthOut} {
		snapped := min(int(length), t.snap)
		if length == 0 || t.left == 0 {
			continue
		}
		if len(frames) < out*t.snap+snapped {
			return fmt.Errorf("read copies: a record of %d bytes is too short", len(raw))
		}
		p.Out, p.Length = out == 1, int(length)
		p.Frame = append([]byte(nil), frames[out*t.snap:out*t.snap+snapped]...)
		t.batch = append(t.batch, p)
		t.left--
	}
	return nil
}

// wallClock is when the clock of packets was 0.
func wallClock() time.Time {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // never fails
	return time.Now().Add(-time.Duration(now.Nano()))
}

// Filter writes f for the program.
func (t *Tracer) Filter(f look.CaptureFilter) (out bpf.MuxTraceFilter, err error) {
	if f.Client.IsValid() {
		bits := f.Client.Bits()
		if f.Client.Addr().Is4() {
			bits += 96
		}
		mask := netip.PrefixFrom(allOnes, bits).Masked().Addr()
		out.ClientMask.Words = abi.Words(mask)
		out.Client.Words = abi.Words(f.Client.Masked().Addr())
	}
	if f.VIP.IsValid() {
		out.Vip.Words = abi.Words(f.VIP)
	}
	out.ClientPort, out.Port = abi.Port(f.ClientPort), abi.Port(f.Port)
	switch f.Protocol {
	case "TCP":
		out.Protocols = [2]uint8{unix.IPPROTO_TCP, unix.IPPROTO_TCP}
	case "UDP":
		out.Protocols = [2]uint8{unix.IPPROTO_UDP, unix.IPPROTO_UDP}
	case "ICMP":
		out.Protocols = [2]uint8{unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6}
	}
	if f.Verdict == "" {
		return out, nil
	}
	for number, name := range t.Tables.VerdictNames {
		if strings.HasPrefix(name, f.Verdict) {
			out.Verdicts[number/64] |= 1 << (number % 64)
		}
	}
	if out.Verdicts == [2]uint64{} {
		var names []string
		for _, name := range t.Tables.VerdictNames {
			names = append(names, name)
		}
		sort.Strings(names)
		return out, fmt.Errorf("no verdict begins with %q: there are %s", f.Verdict, strings.Join(names, ", "))
	}
	return out, nil
}

var allOnes = netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
