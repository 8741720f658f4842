package trace

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model/look"
)

// explainer runs packets through the program for Explain, one at a time. It is loaded when it is first
// needed.
type explainer struct {
	mu     sync.Mutex
	loaded *Program
}

func (e *explainer) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.loaded == nil {
		return nil
	}
	return e.loaded.Close()
}

// Swap has explain packets by another loaded program, and returns the one that it had: tests load one once.
func (t *Tracer) Swap(program *Program) (before *Program) {
	before, t.explainer.loaded = t.explainer.loaded, program
	return before
}

// Growth is room for what the program puts before a frame.
const Growth = 256

// Explain runs a frame through the program without sending or counting it: no table that packets read
// changes.
func (t *Tracer) Explain(frame []byte) (look.Explanation, error) {
	x := &t.explainer
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := t.Ready(); err != nil {
		return look.Explanation{}, fmt.Errorf("explain a packet: %w", err)
	}
	if x.loaded == nil {
		at := Spec{Mode: bpf.MuxTraceModeTRACE_EXPLAIN, Buffer: SmallestBuffer}
		loaded, err := at.Load(t.Sizes, t.Tables)
		if err != nil {
			return look.Explanation{}, fmt.Errorf("explain a packet: %w", err)
		}
		x.loaded = loaded
	}
	l, out, err := x.loaded.run(frame)
	if err != nil {
		return look.Explanation{}, fmt.Errorf("explain a packet: %w", err)
	}
	e := t.explanation(l)
	e.Frame = out
	return e, nil
}

// run gives the frame to the program, and returns what it noted and the frame as it left.
func (l *Program) run(frame []byte) (note bpf.MuxTrace, out []byte, err error) {
	empty := make([][]byte, ebpf.MustPossibleCPU())
	for i := range empty {
		empty[i] = make([]byte, l.Records.ValueSize())
	}
	if err := l.Records.Put(uint32(0), empty); err != nil {
		return note, nil, fmt.Errorf("clear what the program noted before: %w", err)
	}
	options := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+Growth)}
	if _, err := l.Program.Run(options); err != nil {
		return note, nil, fmt.Errorf("run the program on %d bytes: %w", len(frame), err)
	}
	var rows [][]byte
	if err := l.Records.Lookup(uint32(0), &rows); err != nil {
		return note, nil, fmt.Errorf("read what the program noted: %w", err)
	}
	for _, row := range rows { // one for each CPU
		if note, _, err = decodeTrace(row); err != nil || note.LengthIn != 0 {
			return note, options.DataOut, err
		}
	}
	return note, nil, errors.New("the program noted nothing")
}
