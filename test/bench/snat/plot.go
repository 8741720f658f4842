package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A figure's size and margins, in pixels.
const (
	width, height            = 460, 260
	left, right, top, bottom = 50, 14, 34, 44
)

var colours = []string{"#888888", "#c0392b", "#1f77b4"}

// plot draws the figures that were measured.
func (r report) plot(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("draw figures: %w", err)
	}
	if len(r.Setup) > 0 {
		if err := os.WriteFile(filepath.Join(dir, "snat-setup.svg"), []byte(plotSetup(r.Setup)), 0o644); err != nil {
			return fmt.Errorf("draw figures: %w", err)
		}
	}
	if len(r.Isolation) > 0 {
		if err := os.WriteFile(filepath.Join(dir, "snat-isolation.svg"), []byte(plotIsolation(r.Isolation)), 0o644); err != nil {
			return fmt.Errorf("draw figures: %w", err)
		}
	}
	return nil
}

func begin(title, axis string) *strings.Builder {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n", width, height)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	fmt.Fprintf(&b, `<text x="%d" y="18" text-anchor="middle">%s</text>`+"\n", width/2, title)
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", width/2, height-8, axis)
	return &b
}

func frame(b *strings.Builder) {
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#333"/>`+"\n", left, top, width-left-right, height-top-bottom)
}

// least is where logarithmic axes begin, in ms.
const least = 0.05

// scaled places a value on a logarithmic axis.
func scaled(value, most float64, from, to int) float64 {
	share := (math.Log10(max(value, least)) - math.Log10(least)) / (math.Log10(most) - math.Log10(least))
	return float64(from) + share*float64(to-from)
}

func line(b *strings.Builder, points []string, colour string) {
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", strings.Join(points, " "), colour)
}

func label(b *strings.Builder, i int, text string) {
	y := top + 14 + 14*i
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end" fill="%s">%s</text>`+"\n", width-right-6, height-bottom-54+y-top, colours[i%len(colours)], text)
}

// plotSetup has for each pattern the share of connections that were set up within a time.
func plotSetup(all []setup) string {
	b := begin("connections set up within a time", "ms (logarithmic)")
	most := 1.0
	for _, s := range all {
		most = max(most, slices.Max(s.All))
	}
	for i, s := range all {
		took := slices.Sorted(slices.Values(s.All))
		var points []string
		for n, ms := range took {
			y := float64(height-bottom) - float64(n+1)/float64(len(took))*float64(height-top-bottom)
			points = append(points, fmt.Sprintf("%.1f,%.1f", scaled(ms, most, left, width-right), y))
		}
		line(b, points, colours[i%len(colours)])
		label(b, i, s.Name)
	}
	for ms := 0.1; ms <= most; ms *= 10 {
		fmt.Fprintf(b, `<text x="%.0f" y="%d" text-anchor="middle">%g</text>`+"\n", scaled(ms, most, left, width-right), height-bottom+14, ms)
	}
	for _, share := range []int{0, 50, 100} {
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%d %%</text>`+"\n", left-4, height-bottom-share*(height-top-bottom)/100+4, share)
	}
	frame(b)
	return b.String() + "</svg>\n"
}

// plotIsolation has the set-up of normal and heavy workloads by the heavy one's rate.
func plotIsolation(all []isolation) string {
	b := begin("set-up of a connection, median and 99th percentile", "connections a second that the heavy workload opens")
	most := 1.0
	for _, s := range all {
		most = max(most, s.NormalP99, s.HeavyP99)
	}
	kinds := []struct {
		name, colour string
		of           func(isolation) float64
	}{
		{"normal", colours[2], func(s isolation) float64 { return s.NormalP50 }},
		{"", colours[2], func(s isolation) float64 { return s.NormalP99 }},
		{"heavy", colours[1], func(s isolation) float64 { return s.HeavyP50 }},
		{"", colours[1], func(s isolation) float64 { return s.HeavyP99 }},
	}
	at := func(i int) float64 {
		return float64(left) + (float64(i)+0.5)/float64(len(all))*float64(width-left-right)
	}
	for _, kind := range kinds {
		var points []string
		for i, s := range all {
			if ms := kind.of(s); ms > 0 {
				points = append(points, fmt.Sprintf("%.1f,%.1f", at(i), scaled(ms, most, height-bottom, top)))
			}
		}
		line(b, points, kind.colour)
	}
	for i, s := range all {
		fmt.Fprintf(b, `<text x="%.0f" y="%d" text-anchor="middle">%d</text>`+"\n", at(i), height-bottom+14, s.Rate)
	}
	for ms := 0.1; ms <= most; ms *= 10 {
		fmt.Fprintf(b, `<text x="%d" y="%.0f" text-anchor="end">%g ms</text>`+"\n", left-4, scaled(ms, most, height-bottom, top)+4, ms)
	}
	label(b, 2, "normal")
	label(b, 1, "heavy")
	frame(b)
	return b.String() + "</svg>\n"
}
