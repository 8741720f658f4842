package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A figure's size and margins, in pixels.
const (
	width, height            = 460, 260
	left, right, top, bottom = 60, 14, 34, 44
)

// curve is one line of a figure.
type curve struct {
	name, colour string
	of           func(second) float64
}

// plot draws CPU and packets over time.
func plot(dir string, all []second) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("draw figures: %w", err)
	}
	for name, text := range map[string]string{
		"fastpath-cpu.svg": draw("programs in the kernel, % of a CPU", all,
			curve{"both muxes", "#c0392b", func(s second) float64 { return s.Mux }},
			curve{"a host", "#1f77b4", func(s second) float64 { return s.Host }}),
		"fastpath-packets.svg": draw("packets a second", all,
			curve{"by muxes", "#c0392b", func(s second) float64 { return s.ByMuxes }},
			curve{"past them", "#1f77b4", func(s second) float64 { return s.Direct }}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("draw figures: %w", err)
		}
	}
	return nil
}

// draw has curves over the seconds, and a mark where Fastpath was turned on.
func draw(title string, all []second, curves ...curve) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n", width, height)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	fmt.Fprintf(&b, `<text x="%d" y="18" text-anchor="middle">%s</text>`+"\n", width/2, title)
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">s</text>`+"\n", width/2, height-8)
	fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#333"/>`+"\n", left, top, width-left-right, height-top-bottom)
	most := 1.0
	for _, s := range all {
		for _, c := range curves {
			most = max(most, c.of(s))
		}
	}
	most *= 1.15
	last := all[len(all)-1].At
	x := func(at float64) float64 { return left + at/last*(width-left-right) }
	y := func(value float64) float64 { return height - bottom - value/most*(height-top-bottom) }
	for i, c := range curves {
		var points []string
		for _, s := range all {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(s.At), y(c.of(s))))
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", strings.Join(points, " "), c.colour)
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", left+8, top+14+14*i, c.colour, c.name)
	}
	for i, s := range all {
		if s.Fastpath && i > 0 && !all[i-1].Fastpath {
			at := (x(all[i-1].At) + x(s.At)) / 2
			fmt.Fprintf(&b, `<path d="M %.1f %d V %d" stroke="#888" stroke-dasharray="4 3"/>`+"\n", at, top, height-bottom)
			fmt.Fprintf(&b, `<text x="%.1f" y="%d" fill="#888">Fastpath is on</text>`+"\n", at+4, top+14)
		}
	}
	for i := range 5 {
		value, at := most*float64(i)/4, last*float64(i)/4
		fmt.Fprintf(&b, `<text x="%d" y="%.0f" text-anchor="end">%.3g</text>`+"\n", left-4, y(value)+4, value)
		fmt.Fprintf(&b, `<text x="%.0f" y="%d" text-anchor="middle">%.0f</text>`+"\n", x(at), height-bottom+14, at)
	}
	return b.String() + "</svg>\n"
}
