package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

func TestEachFigureAndTableOfThePapersIsListedOnce(t *testing.T) {
	for _, p := range papers {
		times := map[string]int{}
		for _, f := range p.entries {
			if f.label != "" {
				times[f.label]++
			}
		}
		for kind, count := range map[string]int{"Figure": p.figures, "Table": p.tables} {
			for n := 1; n <= count; n++ {
				label := fmt.Sprintf("%s %d", kind, n)
				if times[label] != 1 {
					t.Errorf("%s: %s is listed %d times", p.key, label, times[label])
				}
				delete(times, label)
			}
		}
		for label := range times {
			t.Errorf("%s has no %s", p.key, label)
		}
	}
}

func TestFiguresAreNamedByTheirLabel(t *testing.T) {
	names := map[string]bool{}
	for _, p := range papers {
		for _, f := range p.entries {
			want := p.key + strings.NewReplacer("Figure ", "-", "Table ", "-table-").Replace(f.label)
			if f.label != "" && f.name != want || f.label == "" && !strings.HasPrefix(f.name, p.key+"-") {
				t.Errorf("%s of %s is named %q", f.place(), p.key, f.name)
			}
			if names[f.name] {
				t.Errorf("two figures are named %s", f.name)
			}
			names[f.name] = true
		}
	}
}

func TestFiguresHaveABenchOrAReason(t *testing.T) {
	for _, f := range allFigures() {
		if f.section == "" || f.shows == "" {
			t.Errorf("%s: section and what it shows are needed", f.name)
		}
		if (f.bench == nil) == (f.missing.text == "") {
			t.Errorf("%s must have either a bench or the reason why there is none", f.name)
		}
		rows := map[string]bool{}
		for _, r := range f.rows {
			if rows[r.name] {
				t.Errorf("%s has %s twice", f.name, r.name)
			}
			rows[r.name] = true
			if r.unit == "" {
				t.Errorf("%s: %s has no unit", f.name, r.name)
			}
			if f.bench == nil && !r.from.isEmpty() {
				t.Errorf("%s: %s is read from a bench, and there is none", f.name, r.name)
			}
		}
	}
}

// What a bench does not understand or write is found here, not after a run of minutes.
func TestBenchesHaveTheFlagsThatFiguresUse(t *testing.T) {
	for _, f := range allFigures() {
		if f.bench == nil {
			continue
		}
		code := sources(t, f.bench.name)
		flags := []string{"out"}
		if len(f.bench.drawings) > 0 {
			flags = append(flags, "plots")
		}
		for _, arg := range f.bench.args {
			if name, ok := strings.CutPrefix(arg, "-"); ok {
				flags = append(flags, name)
			}
		}
		for _, name := range flags {
			if !regexp.MustCompile(`flag\.\w+\(.*"` + name + `", `).MatchString(code) {
				t.Errorf("%s: test/bench/%s has no flag -%s", f.name, f.bench.name, name)
			}
		}
		for _, drawing := range f.bench.drawings {
			if !strings.Contains(code, `"`+drawing+`"`) {
				t.Errorf("%s: test/bench/%s does not draw %s", f.name, f.bench.name, drawing)
			}
		}
	}
}

func TestBenchesWriteTheFieldsThatFiguresUse(t *testing.T) {
	key := regexp.MustCompile(`^[a-z0-9_]+$`)
	for _, f := range allFigures() {
		if f.bench == nil {
			continue
		}
		code := sources(t, f.bench.name)
		for _, r := range f.rows {
			for _, step := range pathStep.FindAllString(r.from.path+"."+r.from.over, -1) {
				if filter := pathFilter.FindStringSubmatch(step); filter != nil {
					step = filter[1]
					if _, err := strconv.ParseFloat(filter[2], 64); err != nil && !strings.Contains(code, `"`+filter[2]+`"`) {
						t.Errorf("%s: test/bench/%s knows no %s %q", f.name, f.bench.name, step, filter[2])
					}
				}
				if key.MatchString(step) && !regexp.MustCompile(`json:"`+step+`[",]`).MatchString(code) {
					t.Errorf("%s: test/bench/%s writes no field %s, which %s needs", f.name, f.bench.name, step, r.name)
				}
			}
		}
	}
}

func TestCommandsOfTheMakefileRunThePapers(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(makefile), "./test/papers -figures '$(FIGURES)'") {
		t.Error("make papers does not run ./test/papers")
	}
}

func TestFindFigures(t *testing.T) {
	found, err := findFigures("ananta-14, ananta-11,ananta-14")
	if err != nil || len(found) != 2 || found[0].name != "ananta-14" || found[1].name != "ananta-11" {
		t.Errorf("found %v, %v", found, err)
	}
	for names, want := range map[string]string{
		"ananta-99":      `there is no figure "ananta-99"`,
		"ananta-11,nglb": `there is no figure "nglb"`,
		"ananta-3":       "ananta-3 can't be reproduced: data of the authors' production network",
	} {
		if _, err := findFigures(names); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", names, err, want)
		}
	}
}

func TestBounds(t *testing.T) {
	for _, c := range []struct {
		bound  *bound
		text   string
		number float64
		met    []float64
		missed []float64
	}{
		{atMost(2), "≤ 2", 2, []float64{-1, 2}, []float64{2.1}},
		{atLeast(0.95), "≥ 0.95", 0.95, []float64{0.95, 7}, []float64{0.94}},
		{within(12, 24), "12 to 24", 12, []float64{12, 24}, []float64{11, 25}},
	} {
		if c.bound.String() != c.text || *c.bound.number() != c.number {
			t.Errorf("%s has the number %v", c.bound, *c.bound.number())
		}
		for _, v := range c.met {
			if !c.bound.isMet(v) {
				t.Errorf("%v does not meet %s", v, c.bound)
			}
		}
		if slices.ContainsFunc(c.missed, c.bound.isMet) {
			t.Errorf("one of %v meets %s", c.missed, c.bound)
		}
	}
}

func TestFormat(t *testing.T) {
	for value, want := range map[float64]string{
		0: "0", 2: "2", 0.0321: "0.0321", 1.23456: "1.235", 13.08: "13.08", 999.96: "1 000", 220_000: "220 000",
		1_234_567.8: "1 234 568",
		-1234:       "-1 234",
	} {
		if got := format(value); got != want {
			t.Errorf("%v is written %q, want %q", value, got, want)
		}
	}
}

func allFigures() (all []figure) {
	for _, p := range papers {
		all = append(all, p.entries...)
	}
	return all
}

// sources returns the code of a bench.
func sources(t *testing.T, name string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "test/bench", name, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there is no bench %s: %v", name, err)
	}
	var all strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}

// A result of less than the figure's command says of what.
func TestStateSaysWhichCommandWasRun(t *testing.T) {
	f := figure{bench: &bench{name: "placement", args: []string{"-only", "muxes"}}}
	whole, part := record{Date: "2026-01-02", Command: f.bench.command()}, record{Date: "2026-01-02", Command: f.bench.with([]string{"-seeds", "1"}).command()}
	if got := f.state(&whole); got != "measured 2026-01-02" {
		t.Errorf("state %q", got)
	}
	if got := f.state(&part); got != "measured 2026-01-02 by `go run ./test/bench/placement -only muxes -seeds 1`" {
		t.Errorf("state %q", got)
	}
}
