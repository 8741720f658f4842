package planinput

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/manifest"
	"github.com/weirlb/weir/internal/placement"
	"github.com/weirlb/weir/internal/traffic"
)

// parse reads flags into the inputs that add them.
func parse(t *testing.T, flags string, add ...func(*cobra.Command)) (*cobra.Command, error) {
	t.Helper()
	cmd := &cobra.Command{}
	for _, f := range add {
		f(cmd)
	}
	return cmd, cmd.ParseFlags(strings.Fields(flags))
}

func write(t *testing.T, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func readManifest(file string) ([]manifest.Resource, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return manifest.Parse(filepath.Base(file), text)
}

// fabricOf reads a fabric of the spec.
func fabricOf(t *testing.T, spec string) (*fabric.Fabric, error) {
	t.Helper()
	var input Input
	file := write(t, "f.yaml", "apiVersion: weir/v1\nkind: Fabric\nmetadata: {name: f}\nspec:\n"+spec+"\n")
	if _, err := parse(t, "--fabric "+file, input.FabricFlag); err != nil {
		t.Fatal(err)
	}
	return input.Fabric(readManifest)
}

func TestWrongFabricsAreRefusedWithTheirLine(t *testing.T) {
	for spec, want := range map[string]string{
		"  switches: [{name: a}, {name: b}, {name: c}, {name: d}]\n  links: [{a: a, b: b, mbitPerS: 1}, {a: c, b: d, mbitPerS: 1}]\n" +
			"  racks: [{name: r, switch: a}, {name: s, switch: c}]": `f.yaml:5: spec.switches: the fabric is in parts: switch "c" has no way to "a"`,
		"  switches: [{name: a}, {name: b}]\n  links:\n  - {a: a, b: b, mbitPerS: 0}\n  racks: [{name: r, switch: a}]":             "f.yaml:7: spec.links[0].mbitPerS: must be a whole number of at least 1",
		"  switches: [{name: a}, {name: b}]\n  links: [{a: a, b: b, mbitPerS: -5}]\n  racks: [{name: r, switch: a}]":               "f.yaml:6: spec.links[0].mbitPerS: must be a whole number",
		"  switches: [{name: a}, {name: b}]\n  links: [{a: a, b: b, mbitPerS: .nan}]\n  racks: [{name: r, switch: a}]":             "f.yaml:6: spec.links[0].mbitPerS: must be a whole number",
		"  switches: [{name: a}, {name: b}]\n  links: [{a: a, b: b, mbitPerS: 9999999999999}]\n  racks: [{name: r, switch: a}]":    "f.yaml:6: spec.links[0].mbitPerS: must be at most 1000000000",
		"  switches: [{name: a}, {name: b}]\n  links: [{a: a, b: c, mbitPerS: 1}]\n  racks: [{name: r, switch: a}]":                `there is no switch "c"`,
		"  switches: [{name: a}, {name: b}]\n  links: [{a: a, b: b, mbitPerS: 1}]\n  racks: [{name: r, switch: tor}]":              `rack "r" is below switch "tor", which is not listed`,
		"  switches: [{name: a}, {name: b}]\n  links: [{a: a, b: b, mbitPerS: 1}]":                                                 "the fabric has no racks",
		"  clos: {containers: 2000000000, torsPerContainer: 2000000000, cores: 1, torMbitPerS: 1}":                                 "f.yaml:5: spec.clos: clos: more than 131072 switches",
		"  clos: {containers: 1, torsPerContainer: 1, cores: 1, torMbitPerS: 1}\n  racks:\n  - {name: rack-9-9, prefixes: [::/0]}": "f.yaml:7: spec.racks[0].name: must be a rack of clos",
		"  clos: {containers: 1, torsPerContainer: 1, cores: 1, torMbitPerS: 1}\n  racks: [{name: rack-1-1, prefixes: [1/2]}]":     "f.yaml:6: spec.racks[0].prefixes[0]: must be an address or a prefix",
	} {
		if _, err := fabricOf(t, spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nerror %v, want %q", spec, err, want)
		}
	}
}

func TestAPlanHasOneFabric(t *testing.T) {
	one := "apiVersion: weir/v1\nkind: Fabric\nmetadata: {name: f}\nspec:\n  clos: {containers: 1, torsPerContainer: 1, cores: 1, torMbitPerS: 1}\n"
	pool := "apiVersion: weir/v1\nkind: AddressPool\nmetadata: {name: p}\nspec: {prefixes: [192.0.2.0/24]}\n"
	for text, want := range map[string]string{
		one + "---\n" + strings.Replace(one, "name: f", "name: g", 1): "there are several of the kind Fabric",
		pool: "there is no document of the kind Fabric",
	} {
		var input Input
		if _, err := parse(t, "--fabric "+write(t, "f.yaml", text), input.FabricFlag); err != nil {
			t.Fatal(err)
		}
		if _, err := input.Fabric(readManifest); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	var input Input
	if f, err := input.Fabric(nil); err != nil || len(f.Racks) != 1600 {
		t.Errorf("without a file it is not that of the paper: %v", err)
	}
}

// intervals reads a trace in a fabric of two racks.
func intervals(t *testing.T, trace string) (all []traffic.Interval, err error) {
	t.Helper()
	f, err := fabricOf(t, "  clos: {containers: 1, torsPerContainer: 2, cores: 1, torMbitPerS: 1}")
	if err != nil {
		t.Fatal(err)
	}
	var input Input
	cmd, err := parse(t, "--trace "+trace, input.Flags)
	if err != nil {
		t.Fatal(err)
	}
	if err := input.Check(cmd); err != nil {
		t.Fatal(err)
	}
	err = input.EachInterval(t.Context(), f, func(i traffic.Interval) error {
		all = append(all, i)
		return nil
	})
	return all, err
}

const head = "interval,vip,rack,kbit_per_s,backends\n"

func TestWrongTracesAreRefusedWithFileAndLine(t *testing.T) {
	for lines, want := range map[string]string{
		"0,a,rack-1-1,NaN,1\n":                                   `t.csv: line 2: rate "NaN" is no number`,
		"0,a,rack-1-1,1,1\n0,b,rack-1-1,-1,1\n":                  `t.csv: line 3: rate "-1" is negative`,
		"0,a,rack-1-1,1e13,1\n":                                  `t.csv: line 2: rate "1e13" is above`,
		"0,a,rack-1-3,1,1\n":                                     `t.csv: line 2: rack "rack-1-3" is not in the fabric`,
		"# no\n0,a,external,1,0\n":                               "t.csv: line 3: VIP a receives traffic and has no backend",
		"0,a,rack-1-1,1,1\n1,a,rack-1-1,1,1\n0,a,rack-1-1,1,1\n": "t.csv: line 4: interval 0 stands behind interval 1",
		"": "t.csv: line 1: the trace has no line behind its head",
	} {
		_, err := intervals(t, write(t, "t.csv", head+lines))
		var refused *traffic.LineError
		if err == nil || !strings.Contains(err.Error(), want) || !errors.As(err, &refused) {
			t.Errorf("%q: error %v, want %q", lines, err, want)
		}
	}
	if _, err := intervals(t, filepath.Join(t.TempDir(), "none.csv")); err == nil || !strings.Contains(err.Error(), "none.csv") {
		t.Errorf("error %v", err)
	}
	if _, err := intervals(t, t.TempDir()); err == nil {
		t.Error("a folder is a trace")
	}
}

func TestVIPOfAllTraffic(t *testing.T) {
	all, err := intervals(t, write(t, "t.csv", head+"0,a,external,1e12,0\n0,a,rack-1-2,0,262144\n"))
	if err != nil || len(all) != 1 || all[0].Rate() != traffic.MaxRate {
		t.Errorf("got %+v, %v", all, err)
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	for flags, want := range map[string]string{
		"--traffic NaNT": "must be a number of bit/s", "--traffic -1T": "must be a number of bit/s", "--traffic 1001T": "must be a number of bit/s",
		"--traffic 0.1k": "must be a number of bit/s", "--traffic 10": "must be a number of bit/s", "--mux InfG": "must be a number of bit/s",
		"--intervals 10001": "--intervals 10001 is not from 1 to 10000", "--vips 0": "--vips must not be 0", "--skew 0": "--skew must not be 0",
		"--max-share 0": "--max-share must not be 0", "--seed 0": "--seed must not be 0", "--trace t.csv --seed 3": "--seed is of generated traffic",
		"--failure-budget NaN": "from 0 to 100", "--failure-budget -1": "from 0 to 100", "--failure-budget 101": "from 0 to 100",
		"--failure-budget 0.00001": "must be 0 or at least 0.0001", "--spread all": "must be one of one, anycast, twins",
		"--algorithm best": "must be one of repair, greedy",
	} {
		var input Input
		var place Placement
		cmd, err := parse(t, flags, input.Flags, place.Flags)
		if err == nil {
			err = input.Check(cmd)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", flags, err, want)
		}
	}
}

func TestWrongWorkloadsAreRefused(t *testing.T) {
	f, err := fabricOf(t, "  clos: {containers: 1, torsPerContainer: 2, cores: 1, torMbitPerS: 1}")
	if err != nil {
		t.Fatal(err)
	}
	for flags, want := range map[string]string{
		"--vips -1": "-1 VIPs are not from 1", "--vips 99999999": "99999999 VIPs are not from 1", "--skew NaN": "a skew of NaN",
		"--skew 1e9": "a skew of 1e+09", "--max-share NaN": "a share of NaN", "--max-share 1.1": "a share of 1.1",
	} {
		var input Input
		if _, err := parse(t, flags, input.Flags); err != nil {
			t.Fatal(err)
		}
		err := input.EachInterval(t.Context(), f, func(traffic.Interval) error { return nil })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", flags, err, want)
		}
	}
}

func TestRatesAsTexts(t *testing.T) {
	for text, want := range map[string]traffic.Rate{"1k": 1, "3.6G": 3_600_000, "10T": 10_000_000_000, "1000T": traffic.MaxRate, "1.5M": 1500} {
		var b bits
		if err := b.Set(text); err != nil || traffic.Rate(b) != want {
			t.Errorf("%s is %d kbit/s, %v, want %d", text, b, err, want)
		}
	}
	for rate, want := range map[traffic.Rate]string{0: "0", 1: "1k", 999: "999k", 1000: "1M", 3_600_000: "3.6G", 999_999_999: "1T", traffic.MaxRate: "1000T"} {
		if got := FormatBits(rate); got != want {
			t.Errorf("%d kbit/s are written as %s, want %s", rate, got, want)
		}
	}
}

func TestFailureBudget(t *testing.T) {
	f, err := fabricOf(t, "  clos: {containers: 2, torsPerContainer: 2, aggsPerContainer: 1, cores: 1, torMbitPerS: 1, aggMbitPerS: 1}")
	if err != nil {
		t.Fatal(err)
	}
	for flags, want := range map[string]int64{
		"": 5000, "--failure-budget 0": 0, "--failure-budget 2.5": 25_000, "--failure-budget 40%": 400_000, "--algorithm greedy": 0,
		"--algorithm greedy --failure-budget 1": 10_000,
	} {
		var place Placement
		if _, err := parse(t, flags, place.Flags); err != nil {
			t.Fatal(err)
		}
		policy, _, err := place.Policy()
		if err != nil {
			t.Fatal(err)
		}
		place.SetBudget(&policy, f, traffic.Interval{})
		if policy.FailureBudget != want {
			t.Errorf("%q: the budget is %d, want %d", flags, policy.FailureBudget, want)
		}
	}
}

func TestRulesAreRead(t *testing.T) {
	rules, err := readRules(strings.NewReader("vip,rule,switches\r\na,pin,core-2  core-1\r\nb,never,\nc,require,\n"))
	want := map[string]placement.VIPPolicy{"a": {Pin: []string{"core-1", "core-2"}}, "b": {Never: true}, "c": {Require: true}}
	if err != nil || fmt.Sprint(rules.VIPs) != fmt.Sprint(want) {
		t.Errorf("got %+v, %v", rules.VIPs, err)
	}
	if vip, line := rules.Unused(map[string]bool{"a": true}); vip != "b" || line != 3 {
		t.Errorf("unused is %s of line %d", vip, line)
	}
	if _, line := rules.Unused(map[string]bool{"a": true, "b": true, "c": true}); line != 0 {
		t.Errorf("unused is one of line %d", line)
	}
}

func TestWrongRulesAreRefusedWithTheirLine(t *testing.T) {
	const head = "vip,rule,switches\n"
	for text, want := range map[string]string{
		"": "line 1: the file is empty", "vip,rule\n": "line 1: the first line of a file of rules is vip,rule,switches",
		head + "a,never\n": "line 2: ", head + ",never,\n": "line 2: ", head + "\n": "line 2: ", head + "a,never,,\n": "line 2: ",
		head + "a,pin,\n": `line 2: the pin of vip "a" names no switch`, head + "a,never,core-1\n": "line 2: rule never of vip",
		head + "a,maybe,\n":                            `line 2: rule "maybe" of vip "a"`,
		head + "a,never,\na,never,\n":                  `line 3: vip "a" has a rule in line 2 already`,
		head + strings.Repeat("x", 10_000):             "line 2: ",
		head + "a,pin," + strings.Repeat("y ", 10_000): "line 2: ",
	} {
		if _, err := readRules(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 5000 {
			t.Errorf("%.40q: error %.200v, want %q", text, err, want)
		}
	}
}

// A file is written whole, or stays as it was.
func TestWriteWhole(t *testing.T) {
	path := write(t, "f", "old")
	failed := errors.New("half")
	err := WriteWhole(path, func(w io.Writer) error {
		_, err := io.WriteString(w, "ne")
		return errors.Join(err, failed)
	})
	if text, _ := os.ReadFile(path); string(text) != "old" || !errors.Is(err, failed) {
		t.Errorf("the file has %q, error %v", text, err)
	}
	if err := WriteText(path, "new"); err != nil {
		t.Error(err)
	}
	if text, _ := os.ReadFile(path); string(text) != "new" {
		t.Errorf("the file has %q", text)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
	if err := WriteText(filepath.Join(path, "x"), "new"); err == nil {
		t.Error("a file is below a file")
	}
}
