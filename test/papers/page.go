package main

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"
)

const pagePath = "docs/papers.md"

const pageHead = `# Figures of the papers

Each figure and table of the four papers that Weir follows, the command that reproduces it, and the measured values
beside the paper's. This page is generated: do not edit it.

* ` + "`make papers`" + ` lists the names of the figures.
* ` + "`make papers FIGURES=ananta-11,ananta-14`" + ` runs the benches of these two, as root. It writes
  ` + "`out/papers/<figure>.json`" + `, keeps the results in ` + "`docs/results/papers`" + `, and writes this page anew.

Weir was not measured on the authors' machines: ratios within one run compare with the papers', other values only by
order of magnitude. The column *ratio* is the measured value to the paper's. *Load before* is the 1-minute load average
when a run began, of earlier figures of the same command too: values of a busy machine are rough.

* **not run**: there is a command, and no result is kept.
* **not reached**: the machine did not get the bench so far, as where a mux takes all that one CPU can send.
* **not built**: the figure is of a feature or bench that Weir does not have yet.
* **an illustration**: the figure draws a design and has nothing to measure.
`

// writePage writes docs/papers.md from the results that are kept.
func writePage(root string) error {
	page, err := renderPage(root)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(root, pagePath), []byte(page))
}

func renderPage(root string) (string, error) {
	var b strings.Builder
	b.WriteString(pageHead)
	for _, p := range papers {
		records := map[string]*record{}
		for _, f := range p.entries {
			of, err := readRecord(root, f.name)
			if err != nil {
				return "", err
			}
			records[f.name] = of
		}
		fmt.Fprintf(&b, "\n## %s\n", p.title)
		p.renderFigures(&b, records)
		p.renderValues(&b, records)
		p.renderRuns(&b, records)
		p.renderDifferences(&b)
	}
	return b.String(), nil
}

func (p paper) renderFigures(b *strings.Builder, records map[string]*record) {
	b.WriteString("\n| figure | place | shows | the paper's result | command | state |\n|---|---|---|---|---|---|\n")
	for _, f := range p.entries {
		place, command := f.place(), ""
		if f.label != "" {
			place += ", section " + f.section
		}
		if f.bench != nil {
			command = "`" + f.bench.command() + "`"
		}
		state := f.state(records[f.name])
		if page := f.missing.page; page != "" {
			state += fmt.Sprintf("; Weir's own: [%s](%s)", page, page)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s |\n", f.name, place, f.shows, f.says, command, state)
	}
}

func (p paper) renderValues(b *strings.Builder, records map[string]*record) {
	b.WriteString("\n| figure | value | unit | paper | ours | ratio | bound |\n|---|---|---|---|---|---|---|\n")
	for _, f := range p.entries {
		for _, r := range f.rows {
			ours, ratio, bound := r.compare(f, records[f.name])
			fmt.Fprintf(b, "| `%s` | `%s` | %s | %s | %s | %s | %s |\n",
				f.name, r.name, r.unit, formatOr(r.paper), ours, ratio, bound)
		}
	}
}

// compare returns the measured value, its ratio to the paper's, and the bound, as the page has them.
func (r row) compare(f figure, of *record) (ours, ratio, limit string) {
	limit = r.bound.String()
	if f.bench == nil || r.from.isEmpty() {
		return "not built", "", limit
	}
	value := of.valueOf(r.name)
	if value == nil && of != nil && r.mayLack {
		return "not reached", "", limit
	}
	if value == nil {
		return "not run", "", limit
	}
	if r.paper != nil && *r.paper != 0 {
		ratio = formatTo(3, *value / *r.paper)
	}
	if r.bound != nil && !r.bound.isMet(*value) {
		limit += ", **missed**"
	}
	return formatTo(3, *value), ratio, limit
}

func (of *record) valueOf(name string) *float64 {
	if of == nil {
		return nil
	}
	for i := range of.Results {
		if of.Results[i].Name == name {
			return &of.Results[i].Value
		}
	}
	return nil
}

// renderRuns says of which run the measured values are.
func (p paper) renderRuns(b *strings.Builder, records map[string]*record) {
	head := "\n| figure | date | commit | machine | load before | drawing |\n|---|---|---|---|---|---|\n"
	for _, f := range p.entries {
		of := records[f.name]
		if of == nil {
			continue
		}
		var drawings []string
		for _, name := range of.Drawings {
			drawings = append(drawings, fmt.Sprintf("[%s](results/papers/%s)", name, name))
		}
		fmt.Fprintf(b, "%s| `%s` | %s | %s | %s | %s | %s |\n", head, f.name, of.Date, of.Commit, of.Machine,
			format(of.Load), strings.Join(drawings, ", "))
		head = ""
	}
}

// renderDifferences says what the benches do otherwise than the papers.
func (p paper) renderDifferences(b *strings.Builder) {
	head := "\nWhat differs from the paper:\n\n"
	for _, f := range p.entries {
		if f.differs != "" {
			b.WriteString(head + wrap("* `"+f.name+"`: "+f.differs) + "\n")
			head = ""
		}
	}
}

// wrap breaks the text of an item of a list into lines of at most 120 characters.
func wrap(text string) string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && utf8.RuneCountInString(line+" "+word) > 120 {
			lines, line = append(lines, line), " "
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return strings.Join(append(lines, line), "\n")
}

func formatOr(value *float64) string {
	if value == nil {
		return ""
	}
	return format(*value)
}

// format writes a number with four significant digits.
func format(value float64) string { return formatTo(4, value) }

// formatTo writes a number with so many significant digits, or all digits of its integer part in groups of three.
func formatTo(digits int, value float64) string {
	if value == 0 {
		return "0"
	}
	if math.Abs(value) < 999.5 {
		return strconv.FormatFloat(value, 'g', digits, 64)
	}
	whole := strconv.FormatFloat(math.Round(value), 'f', 0, 64)
	for at := len(whole) - 3; at > 0 && whole[at-1] != '-'; at -= 3 {
		whole = whole[:at] + " " + whole[at:]
	}
	return whole
}
