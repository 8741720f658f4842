package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The plots' size and margins, in pixels.
const (
	plotWidth, plotHeight    = 300, 220
	left, right, top, bottom = 44, 12, 28, 36
)

// plotAll writes one picture with a plot for each thing that grows.
func plotAll(dir string, results []result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if !slices.ContainsFunc(results, func(r result) bool { return strings.HasPrefix(r.Name, "by ") }) {
		return nil // nothing was grown: the picture that there is stays
	}
	var b strings.Builder
	kinds := []struct {
		name, axis string
		x          func(result) int
	}{
		{"by VIPs", "VIPs", func(r result) int { return r.VIPs }},
		{"by muxes", "muxes", func(r result) int { return r.Muxes }},
		{"by agents", "agents", func(r result) int { return r.Agents }},
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n",
		plotWidth*len(kinds), plotHeight)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	most := 1.0
	for _, r := range results {
		if strings.HasPrefix(r.Name, "by ") {
			most = max(most, r.P99)
		}
	}
	for i, kind := range kinds {
		var points []result
		for _, r := range results {
			if r.Name == kind.name {
				points = append(points, r)
			}
		}
		slices.SortFunc(points, func(a, b result) int { return kind.x(a) - kind.x(b) })
		plot(&b, i*plotWidth, kind.axis, points, kind.x, most)
	}
	b.WriteString("</svg>\n")
	return os.WriteFile(filepath.Join(dir, "manager-growth.svg"), []byte(b.String()), 0o644)
}

// plot draws p50 and p99 of one change, both axes logarithmic.
func plot(b *strings.Builder, at int, axis string, points []result, x func(result) int, most float64) {
	if len(points) == 0 {
		return
	}
	first, last := math.Log10(float64(x(points[0]))), math.Log10(float64(x(points[len(points)-1])))
	high := math.Ceil(math.Log10(most))
	px := func(v int) float64 {
		return float64(at+left) + (math.Log10(float64(v))-first)/max(last-first, 0.01)*float64(plotWidth-left-right)
	}
	py := func(ms float64) float64 {
		return float64(plotHeight-bottom) - math.Log10(max(ms, 1))/high*float64(plotHeight-top-bottom)
	}
	fmt.Fprintf(b, `<text x="%d" y="16" font-weight="bold">one change, by %s</text>`+"\n", at+left, axis)
	for decade := 0.0; decade <= high; decade++ {
		y := py(math.Pow(10, decade))
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>`+"\n", at+left, at+plotWidth-right, y, y)
		fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%.0f ms</text>`+"\n", at+left-4, y+4, math.Pow(10, decade))
	}
	for _, line := range []struct {
		name, color string
		y           func(result) float64
	}{
		{"p99", "#c33", func(r result) float64 { return r.P99 }},
		{"p50", "#36c", func(r result) float64 { return r.P50 }},
	} {
		var path []string
		for _, p := range points {
			path = append(path, fmt.Sprintf("%.1f,%.1f", px(x(p)), py(line.y(p))))
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"/>`+"\n", px(x(p)), py(line.y(p)), line.color)
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s"/>`+"\n", strings.Join(path, " "), line.color)
		end := points[len(points)-1]
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="end" fill="%s">%s</text>`+"\n", px(x(end)), py(line.y(end))-6, line.color, line.name)
	}
	for _, p := range points {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n", px(x(p)), plotHeight-bottom+16, x(p))
	}
}
