package traffic

import (
	"errors"
	"io"
	"runtime"
	"strconv"
	"testing"
)

// lines is a trace of so many lines without another copy of them: each interval has so many.
type lines struct {
	written, all, perInterval int
	rest                      []byte
}

func (l *lines) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(l.rest) == 0 {
			if l.written > l.all {
				return n, io.EOF
			}
			l.rest = l.next(l.rest[:0:cap(l.rest)])
		}
		copied := copy(p[n:], l.rest)
		n, l.rest = n+copied, l.rest[copied:]
	}
	return n, nil
}

func (l *lines) next(line []byte) []byte {
	at := l.written - 1
	if l.written++; at < 0 {
		return append(append(line, header...), '\n')
	}
	line = strconv.AppendInt(line, int64(at/l.perInterval), 10)
	line = append(line, ",vip-"...)
	line = strconv.AppendInt(line, int64(at%l.perInterval/2), 10)
	return append(line, [2]string{",r1,1,1\n", ",r2,2,1\n"}[at%2]...)
}

// heap is what the heap holds, in MiB.
func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc >> 20
}

// Memory is that of the largest interval, however long the trace is.
func TestLongTracesAreReadInBoundedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("two million lines")
	}
	const all, perInterval = 2_000_000, 100_000
	r := NewReader(&lines{all: all, perInterval: perInterval}, twoRacks, DefaultLimits)
	most, read := uint64(0), 0
	for {
		i, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range i.Demands {
			read += len(d.Sources)
		}
		most = max(most, heap())
	}
	if read != all || most > 128 {
		t.Errorf("%d of %d lines are read, with %d MiB", read, all, most)
	}
}

// Ten million lines of one interval are refused at the first that is too many.
func TestTenMillionLinesOfOneIntervalAreRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("ten million lines")
	}
	limits := DefaultLimits
	limits.VIPs = 1 << 30
	r := NewReader(&lines{all: 10_000_000, perInterval: 10_000_000}, twoRacks, limits)
	_, err := r.Next()
	if err == nil || err.Error() != "line 4194306: interval 0 has more than 4194304 lines" {
		t.Errorf("error %v", err)
	}
	if most := heap(); most > 1024 {
		t.Errorf("the heap holds %d MiB", most)
	}
	if _, again := r.Next(); again != err { //nolint:errorlint // the very same
		t.Errorf("read again: %v", again)
	}
}
