package main

import (
	"math"
	"slices"
	"strings"
)

// paper is a publication that Weir follows.
type paper struct {
	key, title      string
	figures, tables int // that the paper numbers, from 1 on
	entries         []figure
}

var papers = []paper{ananta, duet, mplb, nglb}

// figure is a figure or table of a paper, or a claim of its text that has none.
type figure struct {
	name    string // as FIGURES has it
	label   string // "Figure 11" or "Table 1"; empty: a claim of the text
	section string // of the paper
	shows   string
	says    string // the paper's result; empty: no number is given
	differs string // what Weir's bench does otherwise than the paper, so that values can't be compared without it
	bench   *bench
	missing reason // why there is no bench
	rows    []row
}

// place is where the paper has the figure.
func (f figure) place() string {
	if f.label == "" {
		return "section " + f.section
	}
	return f.label
}

// state says in words whether the figure was measured.
func (f figure) state(of *record) string {
	switch {
	case f.bench == nil:
		return f.missing.text
	case of == nil:
		return "not run"
	default:
		state := "measured " + of.Date
		if of.Command != f.bench.command() {
			state += " by `" + of.Command + "`"
		}
		return state
	}
}

// reason says why a figure has no bench.
type reason struct {
	text string
	page string // of Weir's documents that has the like; empty: none
}

var production = reason{text: "data of the authors' production network"}

// illustration is of a figure that draws a design; page has Weir's own, below docs.
func illustration(page string) reason { return reason{text: "an illustration", page: page} }

// notBuilt is of a figure of a feature that Weir does not have.
func notBuilt(feature string) reason { return reason{text: "not built: " + feature} }

// bench is a program of test/bench and what it is to measure.
type bench struct {
	name     string
	args     []string
	drawings []string // that it writes into the folder of -plots
}

// with is the bench with more flags, for less than all draws for instance.
func (b bench) with(args []string) *bench {
	b.args = slices.Concat(b.args, args)
	return &b
}

// command is how a shell has it.
func (b bench) command() string {
	words := []string{"go", "run", "./test/bench/" + b.name}
	for _, arg := range b.args {
		if strings.ContainsAny(arg, " *") {
			arg = "'" + arg + "'"
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}

// row is one value of a figure.
type row struct {
	name, unit string
	paper      *float64 // the paper's value
	bound      *bound   // of Weir's
	from       source   // empty: the feature is not built
	mayLack    bool     // not every machine gets the bench so far
}

// bound is what a value must keep.
type bound struct{ low, high float64 }

func atMost(high float64) *bound { return &bound{math.Inf(-1), high} }

func atLeast(low float64) *bound { return &bound{low, math.Inf(1)} }

func within(low, high float64) *bound { return &bound{low, high} }

// number is the one that results carry: of a range, its lower end.
func (b *bound) number() *float64 {
	switch {
	case b == nil:
		return nil
	case math.IsInf(b.low, -1):
		return &b.high
	default:
		return &b.low
	}
}

func (b *bound) isMet(value float64) bool { return b.low <= value && value <= b.high }

func (b *bound) String() string {
	switch {
	case b == nil:
		return ""
	case math.IsInf(b.low, -1):
		return "≤ " + format(b.high)
	case math.IsInf(b.high, 1):
		return "≥ " + format(b.low)
	default:
		return format(b.low) + " to " + format(b.high)
	}
}
