package traffic

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Writer writes a trace.
type Writer struct {
	w       *bufio.Writer
	racks   []string
	started bool
	line    []byte
}

// NewWriter returns a writer of a trace in a fabric whose racks have the names.
func NewWriter(w io.Writer, racks []string) *Writer {
	return &Writer{w: bufio.NewWriter(w), racks: racks}
}

// Comment writes a line that readers skip.
func (w *Writer) Comment(text string) error {
	if _, err := fmt.Fprintf(w.w, "%c %s\n", commentMark, strings.ReplaceAll(text, "\n", " ")); err != nil {
		return fmt.Errorf("write the trace: %w", err)
	}
	return nil
}

// Write writes an interval. Its number is above that of the interval before.
func (w *Writer) Write(i Interval) error {
	if !w.started {
		w.started = true
		w.line = append(append(w.line[:0], header...), '\n')
		if _, err := w.w.Write(w.line); err != nil {
			return fmt.Errorf("write the trace: %w", err)
		}
	}
	for _, d := range i.Demands {
		if err := w.writeDemand(i.Number, d); err != nil {
			return fmt.Errorf("write the trace: %w", err)
		}
	}
	if err := w.w.Flush(); err != nil {
		return fmt.Errorf("write the trace: %w", err)
	}
	return nil
}

func (w *Writer) writeDemand(interval int, d Demand) error {
	if d.External > 0 {
		if err := w.writeRow(interval, d.VIP, External, d.External, 0); err != nil {
			return err
		}
	}
	sources, backends := d.Sources, d.Backends
	for len(sources) > 0 || len(backends) > 0 {
		var rate Rate
		var count int32
		rack := nextRack(sources, backends)
		if len(sources) > 0 && sources[0].Rack == rack {
			rate, sources = sources[0].Rate, sources[1:]
		}
		if len(backends) > 0 && backends[0].Rack == rack {
			count, backends = backends[0].Backends, backends[1:]
		}
		if err := w.writeRow(interval, d.VIP, w.racks[rack], rate, count); err != nil {
			return err
		}
	}
	return nil
}

func nextRack(sources []Share, backends []Group) int32 {
	switch {
	case len(sources) == 0:
		return backends[0].Rack
	case len(backends) == 0:
		return sources[0].Rack
	default:
		return min(sources[0].Rack, backends[0].Rack)
	}
}

func (w *Writer) writeRow(interval int, vip, rack string, rate Rate, backends int32) error {
	line := strconv.AppendInt(w.line[:0], int64(interval), 10)
	line = append(append(append(append(line, ','), vip...), ','), rack...)
	line = strconv.AppendInt(append(line, ','), int64(rate), 10)
	line = strconv.AppendInt(append(line, ','), int64(backends), 10)
	line = append(line, '\n')
	w.line = line
	_, err := w.w.Write(w.line)
	return err
}
