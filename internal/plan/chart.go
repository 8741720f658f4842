package plan

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Chart is a drawing of lines in the style of docs/figures.
type Chart struct {
	Title, Axis string // above and below
	LogX, LogY  bool
	UnitY       string // behind the numbers at the left
	Series      []Line
}

// Line is one line of a chart.
type Line struct {
	Name   string
	Points []Point
}

// Point is one of a line. On a logarithmic axis points that are not above 0 are left out.
type Point struct{ X, Y float64 }

// A chart's size and margins, in pixels.
const (
	chartWidth, chartHeight                      = 460, 260
	chartLeft, chartRight, chartTop, chartBottom = 58, 14, 34, 44
)

var chartColours = []string{"#888888", "#c0392b", "#1f77b4", "#2ca02c", "#8e44ad", "#d68910"}

// SVG draws the chart.
func (c Chart) SVG() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n",
		chartWidth, chartHeight)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	fmt.Fprintf(&b, `<text x="%d" y="18" text-anchor="middle">%s</text>`+"\n", chartWidth/2, html.EscapeString(c.Title))
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", chartWidth/2, chartHeight-8, html.EscapeString(c.Axis))
	x := c.scale(c.LogX, func(p Point) float64 { return p.X }, chartLeft, chartWidth-chartRight)
	y := c.scale(c.LogY, func(p Point) float64 { return p.Y }, chartHeight-chartBottom, chartTop)
	for _, tick := range x.ticks() {
		fmt.Fprintf(&b, `<text x="%.0f" y="%d" text-anchor="middle">%s</text>`+"\n", x.place(tick), chartHeight-chartBottom+14, short(tick))
	}
	for _, tick := range y.ticks() {
		at := y.place(tick)
		fmt.Fprintf(&b, `<text x="%d" y="%.0f" text-anchor="end">%s%s</text>`+"\n", chartLeft-4, at+4, short(tick), html.EscapeString(c.UnitY))
		fmt.Fprintf(&b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#eee"/>`+"\n", chartLeft, at, chartWidth-chartRight, at)
	}
	for i, s := range c.Series {
		c.drawLine(&b, i, s, x, y)
	}
	fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#333"/>`+"\n",
		chartLeft, chartTop, chartWidth-chartLeft-chartRight, chartHeight-chartTop-chartBottom)
	return b.String() + "</svg>\n"
}

// CSV lists the points of the lines: name, x and y.
func (c Chart) CSV() string {
	var b strings.Builder
	b.WriteString("line,x,y\n")
	for _, s := range c.Series {
		for _, p := range s.Points {
			fmt.Fprintf(&b, "\"%s\",%g,%g\n", strings.ReplaceAll(s.Name, `"`, `""`), p.X, p.Y)
		}
	}
	return b.String()
}

func (c Chart) drawLine(b *strings.Builder, i int, s Line, x, y scale) {
	colour := chartColours[i%len(chartColours)]
	var points []string
	for _, p := range s.Points {
		if !(c.LogX && p.X <= 0 || c.LogY && p.Y <= 0) {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x.place(p.X), y.place(p.Y)))
		}
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", strings.Join(points, " "), colour)
	fmt.Fprintf(b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", chartLeft+8, chartTop+14+13*i, colour, html.EscapeString(s.Name))
}

// scale places values on an axis.
type scale struct {
	low, high float64 // of values
	from, to  float64 // in pixels
	log       bool
}

// scale fits an axis to the values of all lines: from 0 on, or to whole decades.
func (c Chart) scale(log bool, value func(Point) float64, from, to float64) scale {
	s := scale{high: math.Inf(-1), low: math.Inf(1), from: from, to: to, log: log}
	for _, line := range c.Series {
		for _, p := range line.Points {
			if v := value(p); !log || v > 0 {
				s.low, s.high = min(s.low, v), max(s.high, v)
			}
		}
	}
	if s.low > s.high {
		s.low, s.high = 1, 1
	}
	if log {
		s.low = math.Pow(10, math.Floor(math.Log10(s.low)))
		s.high = max(math.Pow(10, math.Ceil(math.Log10(s.high)-1e-9)), 10*s.low)
		return s
	}
	s.low = min(0, s.low)
	step := niceStep(s.high - s.low)
	s.high = max(math.Ceil(s.high/step-1e-9)*step, s.low+step)
	return s
}

func (s scale) place(v float64) float64 {
	part := (v - s.low) / (s.high - s.low)
	if s.log {
		part = (math.Log10(v) - math.Log10(s.low)) / (math.Log10(s.high) - math.Log10(s.low))
	}
	return s.from + part*(s.to-s.from)
}

func (s scale) ticks() (ticks []float64) {
	if s.log {
		for v := s.low; v <= s.high*1.001; v *= 10 {
			ticks = append(ticks, v)
		}
		return ticks
	}
	step := niceStep(s.high - s.low)
	for i := range int((s.high-s.low)/step + 1.001) {
		ticks = append(ticks, s.low+float64(i)*step)
	}
	return ticks
}

// niceStep is 1, 2 or 5 times a power of ten, so that a range has about five steps.
func niceStep(of float64) float64 {
	if of <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(of/5)))
	for _, n := range []float64{1, 2, 5} {
		if of/(n*power) <= 6 {
			return n * power
		}
	}
	return 10 * power
}

// short writes a number of an axis: 15000 as 15k.
func short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e6:
		return fmt.Sprintf("%.4gM", v/1e6)
	case a >= 1e4:
		return fmt.Sprintf("%.4gk", v/1e3)
	default:
		return fmt.Sprintf("%.4g", v)
	}
}
