package netlab

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirlb/weir/internal/lab/switches"
)

// Picture draws the lab as text: on the left who sends, on the right who serves.
func (p Plan) Picture() string {
	var left, right []string
	senders, width := slices.Concat(p.Of(Client), p.Of(Outside), p.Of(Manager)), 9
	for _, n := range senders {
		width = max(width, len(n.IPv4.String()))
	}
	for _, n := range senders {
		left = append(left, fmt.Sprintf("%-8s %-*s ───", n.Name, width, n.IPv4))
	}
	for _, n := range p.Of(Mux) {
		right = append(right, fmt.Sprintf("─── %-8s %-10s XDP, BGP of AS %d", n.Name, n.IPv4, muxAS))
	}
	for _, n := range p.Of(Switch) {
		right = append(right, fmt.Sprintf("─── %-8s %-10s switch, FRR of AS %d", n.Name, n.IPv4, switches.AS(n.Number)))
	}
	for _, h := range p.Of(Host) {
		right = append(right, fmt.Sprintf("─── %-8s %-10s agent", h.Name, h.IPv4))
		workloads := p.workloadsOf(h)
		for i, w := range workloads {
			branch, home := "├", "in its own namespace"
			if i == len(workloads)-1 {
				branch = "└"
			}
			if w.Native {
				home = "native on the host"
			}
			right = append(right, fmt.Sprintf("     %s── %-8s %-10s %s", branch, w.Name, w.IPv4, home))
		}
	}
	for _, h := range p.Of(ClientHost) {
		right = append(right, fmt.Sprintf("─── %-8s %-10s agent", h.Name, h.IPv4))
		tenants := p.tenants(h)
		for i, w := range tenants {
			branch := "├"
			if i == len(tenants)-1 {
				branch = "└"
			}
			right = append(right, fmt.Sprintf("     %s── %-8s %-10s in its tenant's virtual network", branch, w.Name, w.IPv4))
		}
	}
	return join(left, right)
}

func (p Plan) workloadsOf(host Node) []Node {
	var of []Node
	for _, w := range p.Of(Workload) {
		if w.Host == host.Name {
			of = append(of, w)
		}
	}
	return of
}

// join wires both columns to the router, which stands beside the middle of the taller one.
func join(left, right []string) string {
	middle := (max(len(left), len(right)) - 1) / 2
	l := newTrunk(left, middle)
	r := newTrunk(right, middle)
	width := 0
	for _, line := range left {
		width = max(width, len([]rune(line)))
	}
	var b strings.Builder
	for row := range max(l.top+len(left), r.top+len(right)) {
		router := strings.Repeat(" ", 17)
		switch row {
		case middle:
			router = "───── router ────"
		case middle + 1:
			router = fmt.Sprintf("  FRR, AS %d  ", routerAS)
		}
		text := l.line(row)
		text += strings.Repeat(" ", width-len([]rune(text)))
		line := "  " + text + l.piece(row, l.wired(row), row == middle) + router +
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
