// Package picture draws as text what is wired to something in the middle.
package picture

import "strings"

// Join wires both columns to what stands beside the middle of the taller one: two lines of equal width.
func Join(left, right []string, across, below string) string {
	middle := (max(len(left), len(right)) - 1) / 2
	l := newTrunk(left, middle)
	r := newTrunk(right, middle)
	width := 0
	for _, line := range left {
		width = max(width, len([]rune(line)))
	}
	var b strings.Builder
	for row := range max(l.top+len(left), r.top+len(right)) {
		center := strings.Repeat(" ", len([]rune(across)))
		switch row {
		case middle:
			center = across
		case middle + 1:
			center = below
		}
		text := l.line(row)
		text += strings.Repeat(" ", width-len([]rune(text)))
		line := "  " + text + l.piece(row, l.wired(row), row == middle) + center +
			r.piece(row, row == middle, r.wired(row)) + r.line(row)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

const wire = "───"

// trunk is the vertical wire that a column's lines hang on; those without a wire only pass by.
type trunk struct {
	lines         []string
	top           int // row of the first line
	first, bottom int // rows where the wire begins and ends
}

func newTrunk(lines []string, middle int) trunk {
	t := trunk{lines: lines, top: max(0, middle-(len(lines)-1)/2)}
	t.first, t.bottom = middle, middle
	for row := range t.top + len(lines) {
		if t.wired(row) {
			t.first, t.bottom = min(t.first, row), max(t.bottom, row)
		}
	}
	return t
}

func (t trunk) line(row int) string {
	if row < t.top || row >= t.top+len(t.lines) {
		return ""
	}
	return t.lines[row-t.top]
}

func (t trunk) wired(row int) bool {
	return strings.HasPrefix(t.line(row), wire) || strings.HasSuffix(t.line(row), wire)
}

// piece is the trunk's character in a row, with arms to the left and right as wanted.
func (t trunk) piece(row int, left, right bool) string {
	up := row > t.first && row <= t.bottom
	down := row >= t.first && row < t.bottom
	pieces := [...]string{" ", "─", "─", "─", "│", "┐", "┌", "┬", "│", "┘", "└", "┴", "│", "┤", "├", "┼"}
	index := 0
	for i, arm := range []bool{left, right, down, up} {
		if arm {
			index |= 1 << i
		}
	}
	return pieces[index]
}
