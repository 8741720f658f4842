package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const sample = `{
	"phases": [
		{"name": "by the muxes", "cpu": 4, "all": [1, 2, 9]},
		{"name": "with Fastpath", "cpu": 1, "all": [3]}
	],
	"rows": [{"flows": 1000000, "took": {"ns": 50}}, {"flows": 1, "took": {"ns": 25}}]
}`

func decode(t *testing.T, text string) (document any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	return document
}

func TestSourcesSelectAndFold(t *testing.T) {
	document := decode(t, sample)
	for _, c := range []struct {
		from source
		want float64
	}{
		{source{path: "phases[name=with Fastpath].cpu"}, 1},
		{source{path: "phases[name=with Fastpath].cpu", over: "phases[name=by the muxes].cpu"}, 0.25},
		{source{path: "phases[name=by the muxes].all[2]"}, 9},
		{source{path: "phases.all", fold: "max"}, 9},
		{source{path: "phases.all", fold: "min"}, 1},
		{source{path: "phases.all", fold: "sum"}, 15},
		{source{path: "phases.all", fold: "median"}, 2.5},
		{source{over: "rows[flows=1000000].took.ns", times: 1000}, 20},
		{source{path: "phases[name=with Fastpath][cpu=1].all"}, 3},
	} {
		if got, err := c.from.value(document); err != nil || got != c.want {
			t.Errorf("%+v is %v, %v, want %v", c.from, got, err, c.want)
		}
	}
	array := decode(t, `[{"name": "a", "x": 1}, {"name": "b", "x": 2}]`)
	if got, err := (source{path: "[name=b].x"}).value(array); err != nil || got != 2 {
		t.Errorf("of an array: %v, %v", got, err)
	}
}

func TestSourcesThatSelectNothingAreErrors(t *testing.T) {
	document := decode(t, sample)
	for _, from := range []source{
		{path: "phases[name=other].cpu"},
		{path: "phases.cpu"},
		{path: "phases.name", fold: "sum"},
		{path: "phases[7].cpu"},
		{path: "nothing.there"},
		{path: "phases.all", fold: "mean"},
		{path: "[name=by the muxes].cpu"},
		{over: "rows.took.ns"},
	} {
		if got, err := from.value(document); err == nil {
			t.Errorf("%+v is %v", from, got)
		}
	}
	if got, err := (source{path: "a", over: "b"}).value(decode(t, `{"a": 0, "b": 0}`)); err == nil {
		t.Errorf("0 divided by 0 is %v", got)
	}
}

func TestResultsHaveOneForm(t *testing.T) {
	f := figure{name: "a-1", rows: []row{
		{
			name: "with", unit: "ms", paper: new(5.0), bound: atMost(3),
			from: source{path: "phases[name=with Fastpath].cpu"},
		},
		{name: "without", unit: "ratio", from: source{path: "phases[name=by the muxes].cpu"}},
		{name: "later", unit: "ratio", bound: atLeast(1)},
	}}
	results, err := f.extract(decode(t, sample))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "out", "a-1.json")
	if err := writeJSON(path, results); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"name":"with","value":1,"unit":"ms","paper":5,"bound":3},` +
		`{"name":"without","value":4,"unit":"ratio","paper":null,"bound":null}]`
	if text := strings.Join(strings.Fields(string(got)), ""); text != want {
		t.Errorf("results are %s, want %s", text, want)
	}
}

func TestAFigureWithoutAllValuesIsAnError(t *testing.T) {
	f := figure{name: "a-1", rows: []row{
		{name: "there", from: source{path: "phases[name=with Fastpath].cpu"}},
		{name: "gone", from: source{path: "phases.gone"}},
	}}
	if _, err := f.extract(decode(t, sample)); err == nil || !strings.Contains(err.Error(), "gone of a-1") {
		t.Errorf("error %v", err)
	}
}

func TestKeptResultsAreOfFiguresAsTheyAre(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, keptFolder, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		f, known := figureNamed(name)
		of, err := readRecord(root, name)
		if err != nil || !known || of.Figure != name || f.bench == nil {
			t.Errorf("%s: %+v, %v", file, of, err)
			continue
		}
		if of.Date == "" || of.Commit == "" || of.Machine == "" || len(of.Results) == 0 {
			t.Errorf("%s: date, commit, machine and results are needed", file)
		}
		for _, drawing := range of.Drawings {
			if _, err := os.Stat(filepath.Join(root, keptFolder, drawing)); err != nil {
				t.Error(err)
			}
		}
		for _, r := range of.Results {
			same := func(row row) bool { return row.name == r.Name && row.unit == r.Unit }
			if !slices.ContainsFunc(f.rows, same) || math.IsNaN(r.Value) {
				t.Errorf("%s: %s in %s is no value of the figure", file, r.Name, r.Unit)
			}
		}
	}
}

func TestPageIsCurrent(t *testing.T) {
	want, err := renderPage(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, pagePath))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the results say: go run ./test/papers -page", pagePath)
	}
}

func TestPageComparesWithThePaper(t *testing.T) {
	measured := row{name: "x", paper: new(4.0), bound: atMost(1), from: source{path: "x"}}
	f := figure{bench: &bench{}}
	of := &record{Results: []result{{Name: "x", Value: 2}}}
	for _, c := range []struct {
		row  row
		f    figure
		of   *record
		want [3]string
	}{
		{measured, f, of, [3]string{"2", "0.5", "≤ 1, **missed**"}},
		{measured, f, nil, [3]string{"not run", "", "≤ 1"}},
		{row{name: "y", bound: atMost(1), from: source{path: "y"}, mayLack: true}, f, of, [3]string{"not reached", "", "≤ 1"}},
		{row{name: "x", from: source{path: "x"}}, f, of, [3]string{"2", "", ""}},
		{row{name: "x", paper: new(0.0), bound: atMost(2), from: source{path: "x"}}, f, of, [3]string{"2", "", "≤ 2"}},
		{row{name: "x", bound: atLeast(1)}, f, of, [3]string{"not built", "", "≥ 1"}},
		{measured, figure{missing: notBuilt("it")}, of, [3]string{"not built", "", "≤ 1"}},
	} {
		ours, ratio, limit := c.row.compare(c.f, c.of)
		if got := [3]string{ours, ratio, limit}; got != c.want {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}

func TestRowsThatAMachineMayLackAreLeftOut(t *testing.T) {
	document := decode(t, `{"there": 1}`)
	lacking := row{name: "lacking", from: source{path: "lacking"}, mayLack: true}
	got, err := figure{rows: []row{{name: "there", from: source{path: "there"}}, lacking}}.extract(document)
	if err != nil || len(got) != 1 || got[0].Name != "there" {
		t.Errorf("%v, %v", got, err)
	}
	lacking.mayLack = false
	if got, err := (figure{rows: []row{lacking}}).extract(document); err == nil {
		t.Errorf("a row that must be there is left out: %v", got)
	}
}

func TestResultsAreKeptWithTheirDrawings(t *testing.T) {
	dir := t.TempDir()
	f := figure{
		name: "a-1", bench: &bench{drawings: []string{"a.svg"}},
		rows: []row{{name: "with", unit: "ms", from: source{path: "phases[name=with Fastpath].cpu"}}},
	}
	run := record{Date: "2026-01-02", Commit: "abc", Machine: "one", Load: 2, Command: f.bench.command()}
	if err := f.keep(dir, run, decode(t, sample)); err == nil {
		t.Error("kept without the drawing")
	}
	if of, err := readRecord(dir, "a-1"); of != nil || err != nil {
		t.Errorf("kept %+v, %v", of, err)
	}
	if err := writeFile(filepath.Join(dir, outFolder, "a.svg"), []byte("<svg/>")); err != nil {
		t.Fatal(err)
	}
	if err := f.keep(dir, run, decode(t, sample)); err != nil {
		t.Fatal(err)
	}
	of, err := readRecord(dir, "a-1")
	if err != nil || of.Figure != "a-1" || of.Commit != "abc" || of.valueOf("with") == nil || *of.valueOf("with") != 1 {
		t.Errorf("kept %+v, %v", of, err)
	}
	if drawing, err := os.ReadFile(filepath.Join(dir, keptFolder, "a.svg")); err != nil || string(drawing) != "<svg/>" {
		t.Errorf("drawing %q, %v", drawing, err)
	}
}
