package netlab

import (
	"fmt"
	"strings"
)

// Picture draws the lab as text.
//
//	client1  10.0.1.2 ───┐                ┌─── mux1   10.1.1.2
//	manager  10.4.1.2 ───┤                ├─── mux2   10.1.2.2
//	                     ├──── router ────┤
//	                     │     AS 65000   ├─── host1  10.2.1.2
//	                                      │      ├ host1-w1  10.3.1.11
func (p Plan) Picture() string {
	left := append(p.Of(Client), p.Of(Manager)...)
	var right []string
	for _, n := range p.Of(Mux) {
		right = append(right, fmt.Sprintf("─── %-7s %-10s AS %d, XDP", n.Name, n.IPv4, muxAS))
	}
	for _, h := range p.Of(Host) {
		right = append(right, fmt.Sprintf("─── %-7s %-10s agent, TC", h.Name, h.IPv4))
		for _, w := range p.workloadsOf(h) {
			home := "in a namespace of its own"
			if w.Native {
				home = "native on the host"
			}
			right = append(right, fmt.Sprintf("      └ %-9s %-10s %s", w.Name, w.IPv4, home))
		}
	}
	return draw(left, right)
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

// draw joins both columns by the router in the middle of the taller one.
func draw(left []Node, right []string) string {
	rows := max(len(left), len(right))
	router := (rows - 1) / 2
	leftTop := max(0, router-(len(left)-1)/2)
	rightTop := max(0, router-(len(right)-1)/2)
	lastRight := 0 // workloads hang below their host, not on the router
	for i, r := range right {
		if strings.HasPrefix(r, "─") {
			lastRight = i
		}
	}

	var b strings.Builder
	for row := range rows {
		l, r := row-leftTop, row-rightTop
		text, wire := "", ""
		if l >= 0 && l < len(left) {
			text, wire = fmt.Sprintf("%-8s %-10s", left[l].Name, left[l].IPv4), " ───"
		}
		line := fmt.Sprintf("  %-19s%-4s", text, wire)
		line += corner(l >= 0 && l < len(left), row == router, row > min(leftTop, router), row < max(leftTop+len(left)-1, router))
		switch row {
		case router:
			line += "─── router ───"
		case router + 1:
			line += fmt.Sprintf("%14s", fmt.Sprintf("FRR, AS %d  ", routerAS))
		default:
			line += strings.Repeat(" ", 14)
		}
		hangs := r >= 0 && r < len(right) && strings.HasPrefix(right[r], "─")
		line += corner(row == router, hangs, row > min(rightTop, router), row < max(rightTop+lastRight, router))
		if r >= 0 && r < len(right) {
			line += right[r]
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// corner is the piece of a trunk line that has these arms.
func corner(left, right, up, down bool) string {
	pieces := []string{" ", "─", "─", "─", "│", "┐", "┌", "┬", "│", "┘", "└", "┴", "│", "┤", "├", "┼"}
	index := 0
	for i, arm := range []bool{left, right, down, up} {
		if arm {
			index |= 1 << i
		}
	}
	return pieces[index]
}
