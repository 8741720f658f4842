package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirlb/weir/internal/lab/flood"
)

// A figure's size and margins, in pixels.
const (
	width, height            = 460, 260
	left, right, top, bottom = 60, 14, 34, 44
)

var colours = []string{"#1f77b4", "#c0392b", "#888888", "#2ca02c", "#9467bd"}

// curve is one line of a figure: points from left to right.
type curve struct {
	name string
	x, y []float64
}

// plot draws the figures that were measured.
func (r report) plot(dir string) error {
	figures := map[string]string{}
	if len(r.Figure) > 0 {
		figures["flood-impact.svg"] = plotImpact(r.Figure)
		figures["flood-loss.svg"] = plotLoss(r.Figure)
	}
	if r.Long != nil {
		figures["flood-long.svg"] = r.Long.plot()
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("draw figures: %w", err)
	}
	for name, text := range figures {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("draw figures: %w", err)
		}
	}
	return nil
}

// plotImpact has the time until all muxes acted, in the worst trial and at the median, by base load.
func plotImpact(all []series) string {
	var curves []curve
	var names []string
	for _, percent := range []int{100, 50} {
		c := curve{name: map[int]string{100: "worst trial", 50: "median"}[percent]}
		names = nil
		for _, s := range all {
			if s.Mode != modes[0].name || s.Kind != flood.SYN {
				continue
			}
			names = append(names, s.Load)
			c.x = append(c.x, float64(len(names)))
			c.y = append(c.y, percentile(s.detections(), percent)/1000)
		}
		curves = append(curves, c)
	}
	return draw("seconds until a mux answers the flood itself", "base load", names, curves)
}

// plotLoss has the share of the victim's clients, and of the others', that lose their connections in each second of a flood,
// at the heavy base load.
func plotLoss(all []series) string {
	var curves []curve
	for _, s := range all {
		if s.Load != all[len(all)-1].Load {
			continue
		}
		own, others := curve{name: "victim's own, " + s.Mode}, curve{name: "others, " + s.Mode}
		for i, second := range s.Seconds {
			own.x, others.x = append(own.x, float64(i)), append(others.x, float64(i))
			own.y, others.y = append(own.y, second.Own.lost()), append(others.y, second.Others.lost())
		}
		curves = append(curves, own)
		if s.Mode == modes[0].name {
			curves = append(curves, others)
		}
	}
	return draw("connections lost, %, at the heavy base load", "second of the flood in which they began", nil, curves)
}

func (l *long) plot() string {
	programs, daemons := curve{name: "muxes' programs, % of a CPU"}, curve{name: "their daemons, % of a CPU"}
	resident, tables := curve{name: "daemons' memory, MiB"}, curve{name: "tables' memory, MiB"}
	for _, s := range l.Samples {
		for c, value := range map[*curve]float64{&programs: s.Programs, &daemons: s.Daemons, &resident: s.Resident, &tables: s.Tables} {
			c.x, c.y = append(c.x, s.At), append(c.y, value)
		}
	}
	return draw("both muxes beside a flood at full speed", "s since it began", nil, []curve{programs, daemons, resident, tables})
}

// draw has curves over x, which is a number, or a place in names.
func draw(title, axis string, names []string, curves []curve) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n", width, height)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	fmt.Fprintf(&b, `<text x="%d" y="18" text-anchor="middle">%s</text>`+"\n", width/2, title)
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", width/2, height-8, axis)
	fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#333"/>`+"\n", left, top, width-left-right, height-top-bottom)
	first, last, most := 0.0, 1.0, 1.0
	for _, c := range curves {
		for i := range c.x {
			first, last, most = min(first, c.x[i]), max(last, c.x[i]), max(most, c.y[i])
		}
	}
	if names != nil {
		last = float64(len(names)) + 1
	}
	most *= 1.15
	x := func(at float64) float64 { return left + (at-first)/(last-first)*(width-left-right) }
	y := func(value float64) float64 { return height - bottom - value/most*(height-top-bottom) }
	for i, c := range curves {
		colour := colours[i%len(colours)]
		var points []string
		for j := range c.x {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(c.x[j]), y(c.y[j])))
			if names != nil {
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x(c.x[j]), y(c.y[j]), colour)
			}
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", strings.Join(points, " "), colour)
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", left+8, top+14+14*i, colour, c.name)
	}
	for i := range 5 {
		value, at := most*float64(i)/4, first+(last-first)*float64(i)/4
		fmt.Fprintf(&b, `<text x="%d" y="%.0f" text-anchor="end">%.3g</text>`+"\n", left-4, y(value)+4, value)
		if names == nil {
			fmt.Fprintf(&b, `<text x="%.0f" y="%d" text-anchor="middle">%.3g</text>`+"\n", x(at), height-bottom+14, at)
		}
	}
	for i, name := range names {
		fmt.Fprintf(&b, `<text x="%.0f" y="%d" text-anchor="middle">%s</text>`+"\n", x(float64(i+1)), height-bottom+14, name)
	}
	return b.String() + "</svg>\n"
}
