package traffic

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// Reader reads a trace interval by interval.
type Reader struct {
	lines  *bufio.Scanner
	racks  map[string]int32
	limits Limits
	line   int
	next   *row // first of the next interval, already read
	nextAt int  // its interval
	names  names
	rows   []row
	err    error
}

// row is a line of a trace. Its interval is kept once.
type row struct {
	vip, rack, backends int32 // rack -1: external
	line                int32
	rate                Rate
}

// names numbers the VIPs of an interval.
type names struct {
	index map[string]int32
	list  []string
}

const externalRack = -1

// NewReader returns a reader of the trace r in a fabric whose racks have the names, in the order of their indices.
func NewReader(r io.Reader, racks []string, limits Limits) *Reader {
	index := make(map[string]int32, len(racks)+1)
	for i, name := range racks {
		index[name] = int32(i)
	}
	index[External] = externalRack
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, min(limits.LineBytes+2, 4096)), limits.LineBytes+2)
	return &Reader{lines: lines, racks: index, limits: limits, names: names{index: map[string]int32{}}}
}

// Next returns the next interval, or io.EOF behind the last. A trace that is refused gives a *LineError.
func (r *Reader) Next() (Interval, error) {
	if r.err != nil {
		return Interval{}, r.err
	}
	interval, err := r.read()
	if err != nil {
		r.err = err
		return Interval{}, err
	}
	return interval, nil
}

func (r *Reader) read() (Interval, error) {
	if r.line == 0 {
		if err := r.readHead(); err != nil {
			return Interval{}, err
		}
	}
	if r.next == nil {
		return Interval{}, io.EOF
	}
	number := r.nextAt
	r.rows = append(r.rows[:0], *r.next)
	for {
		read, at, err := r.readRow(number)
		if err != nil {
			return Interval{}, err
		}
		if read == nil || at != number {
			demands, err := r.demands()
			r.next, r.nextAt = read, at
			if read != nil {
				r.startNames(read)
			}
			return Interval{Number: number, Demands: demands}, err
		}
		if len(r.rows) == r.limits.Rows {
			return Interval{}, r.refuse("interval %d has more than %d lines", number, r.limits.Rows)
		}
		r.rows = append(r.rows, *read)
	}
}

// startNames numbers the VIPs of a new interval, of which one row has been read.
func (r *Reader) startNames(first *row) {
	name := r.names.list[first.vip]
	first.vip = 0
	r.names = names{index: map[string]int32{name: 0}, list: []string{name}}
}

func (r *Reader) readHead() error {
	text, err := r.readLine()
	if errors.Is(err, io.EOF) {
		return &LineError{Line: 1, Reason: "the trace is empty: the first line is " + header}
	}
	if err != nil {
		return err
	}
	if string(text) != header {
		return r.refuse("the first line of a trace is %s", header)
	}
	r.next, r.nextAt, err = r.readRow(-1)
	if r.next == nil && err == nil {
		return r.refuse("the trace has no line behind its head")
	}
	return err
}

// readLine returns the next line that is neither empty nor a comment, or io.EOF.
func (r *Reader) readLine() ([]byte, error) {
	for r.lines.Scan() {
		r.line++
		text := bytes.TrimSuffix(r.lines.Bytes(), []byte("\r"))
		if r.line == 1 {
			text = bytes.TrimPrefix(text, []byte("\ufeff"))
		}
		if r.line > r.limits.Lines {
			return nil, r.refuse("the trace has more than %d lines", r.limits.Lines)
		}
		if len(text) > r.limits.LineBytes {
			return nil, r.refuse("the line is longer than %d bytes", r.limits.LineBytes)
		}
		if len(text) > 0 && text[0] != commentMark {
			return text, nil
		}
	}
	switch err := r.lines.Err(); {
	case err == nil:
		return nil, io.EOF
	case errors.Is(err, bufio.ErrTooLong):
		r.line++
		return nil, r.refuse("the line is longer than %d bytes", r.limits.LineBytes)
	default:
		return nil, fmt.Errorf("read the trace: %w", err)
	}
}

// readRow returns the next row and its interval, which is not below least; nil at the end of the trace.
func (r *Reader) readRow(least int) (*row, int, error) {
	text, err := r.readLine()
	if errors.Is(err, io.EOF) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	var fields [5][]byte
	if !split(text, &fields) {
		return nil, 0, r.refuse("the line needs 5 fields between commas: %s", header)
	}
	interval, err := strconv.ParseUint(string(fields[0]), 10, 31)
	if err != nil {
		return nil, 0, r.refuse("interval %s is no number from 0 on", quote(fields[0]))
	}
	if int(interval) < least {
		return nil, 0, r.refuse("interval %d stands behind interval %d: intervals ascend", interval, least)
	}
	read := &row{line: int32(min(r.line, math.MaxInt32))}
	var known bool
	if read.rack, known = r.racks[string(fields[2])]; !known {
		return nil, 0, r.refuse("rack %s is not in the fabric", quote(fields[2]))
	}
	if read.rate, err = r.parseRate(fields[3]); err != nil {
		return nil, 0, err
	}
	if read.backends, err = r.parseBackends(fields[4], read.rack); err != nil {
		return nil, 0, err
	}
	read.vip, err = r.numberVIP(fields[1], int(interval) != least)
	return read, int(interval), err
}

// split cuts the fields at commas and takes quotes off; false: there are more or fewer.
func split(text []byte, fields *[5][]byte) bool {
	for i := range fields {
		field, rest, more := bytes.Cut(text, []byte{','})
		if more != (i < len(fields)-1) {
			return false
		}
		field = bytes.TrimSpace(field)
		if n := len(field); n >= 2 && field[0] == '"' && field[n-1] == '"' {
			field = field[1 : n-1]
		}
		if bytes.IndexByte(field, '"') >= 0 {
			return false
		}
		fields[i], text = field, rest
	}
	return true
}

func (r *Reader) parseRate(field []byte) (Rate, error) {
	value, err := strconv.ParseFloat(string(field), 64)
	if err != nil && !math.IsInf(value, 0) || math.IsNaN(value) {
		return 0, r.refuse("rate %s is no number", quote(field))
	}
	if value < 0 {
		return 0, r.refuse("rate %s is negative", quote(field))
	}
	if value > float64(MaxRate) {
		return 0, r.refuse("rate %s is above %d kbit/s", quote(field), MaxRate)
	}
	return Rate(math.Round(value)), nil
}

func (r *Reader) parseBackends(field []byte, rack int32) (int32, error) {
	value, err := strconv.ParseUint(string(field), 10, 31)
	if err != nil || value > MaxBackends {
		return 0, r.refuse("backends %s is no number from 0 to %d", quote(field), MaxBackends)
	}
	if value > 0 && rack == externalRack {
		return 0, r.refuse("backends stand in a rack, not outside of the fabric")
	}
	return int32(value), nil
}

// numberVIP returns the number of a VIP. The first row of another interval may name one VIP more than the limit.
func (r *Reader) numberVIP(name []byte, isOther bool) (int32, error) {
	if number, known := r.names.index[string(name)]; known {
		return number, nil
	}
	if len(r.names.list) >= r.limits.VIPs && !isOther {
		return 0, r.refuse("the interval has more than %d VIPs", r.limits.VIPs)
	}
	if len(name) == 0 {
		return 0, r.refuse("the VIP has no name")
	}
	if len(name) > r.limits.NameBytes {
		return 0, r.refuse("the name of a VIP is longer than %d bytes", r.limits.NameBytes)
	}
	if !utf8.Valid(name) || bytes.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return 0, r.refuse("VIP %s has characters that can't be printed", quote(name))
	}
	number := int32(len(r.names.list))
	r.names.list = append(r.names.list, string(name))
	r.names.index[r.names.list[number]] = number
	return number, nil
}

// demands gathers the rows of an interval.
func (r *Reader) demands() ([]Demand, error) {
	names := r.names.list
	order := ranks(names)
	slices.SortFunc(r.rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(order[a.vip], order[b.vip]), cmp.Compare(a.rack, b.rack), cmp.Compare(a.line, b.line))
	})
	var all []Demand
	var sum Rate
	for start := 0; start < len(r.rows); {
		end := start + 1
		for end < len(r.rows) && r.rows[end].vip == r.rows[start].vip {
			end++
		}
		d, err := demand(names[r.rows[start].vip], r.rows[start:end])
		if err != nil {
			return nil, err
		}
		if sum += d.Rate(); sum > MaxRate {
			return nil, r.refuse("the rates of an interval are above %d kbit/s together", MaxRate)
		}
		all, start = append(all, d), end
	}
	return all, nil
}

// ranks returns the place of each name among all in ascending order.
func ranks(names []string) []int32 {
	order := make([]int32, len(names))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(names[a], names[b]) })
	rank := make([]int32, len(names))
	for place, i := range order {
		rank[i] = int32(place)
	}
	return rank
}

// demand gathers the rows of a VIP, which are sorted by rack.
func demand(vip string, rows []row) (Demand, error) {
	d := Demand{VIP: vip}
	var sum Rate
	backends := int32(0)
	for i, read := range rows {
		if i > 0 && rows[i-1].rack == read.rack {
			return d, &LineError{int(read.line), fmt.Sprintf("VIP %s has line %d of the same rack and interval", vip, rows[i-1].line)}
		}
		if sum += read.rate; sum > MaxRate {
			return d, &LineError{int(read.line), fmt.Sprintf("VIP %s has more than %d kbit/s", vip, MaxRate)}
		}
		switch {
		case read.rack == externalRack:
			d.External = read.rate
		case read.rate > 0:
			d.Sources = append(d.Sources, Share{Rack: read.rack, Rate: read.rate})
		}
		if read.backends > 0 {
			d.Backends = append(d.Backends, Group{Rack: read.rack, Backends: read.backends})
		}
		if backends += read.backends; backends > MaxBackends {
			return d, &LineError{int(read.line), fmt.Sprintf("VIP %s has more than %d backends", vip, MaxBackends)}
		}
	}
	if sum > 0 && backends == 0 {
		return d, &LineError{int(rows[0].line), fmt.Sprintf("VIP %s receives traffic and has no backend in its interval", vip)}
	}
	return d, nil
}

func (r *Reader) refuse(format string, args ...any) error {
	return &LineError{Line: r.line, Reason: fmt.Sprintf(format, args...)}
}

// quote shows a field of hostile input in at most about 40 characters.
func quote(field []byte) string {
	if len(field) > 40 {
		return strconv.Quote(string(field[:40])) + "..."
	}
	return strconv.Quote(string(field))
}
