package ctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPlanTraffic(t *testing.T) {
	dir := t.TempDir()
	trace, plot := filepath.Join(dir, "t.csv"), filepath.Join(dir, "f.svg")
	generated, _, err := run(t, "", "plan", "traffic", "--fabric", "../../deploy/plan/fabric.yaml", "--vips", "200", "--traffic", "1T",
		"--intervals", "2", "--write", trace, "--plot", plot)
	if err != nil {
		t.Fatal(err)
	}
	read, _, err := run(t, "", "plan", "traffic", "--fabric", "../../deploy/plan/fabric.yaml", "--trace", trace)
	if err != nil || read != generated {
		t.Errorf("generated:\n%s\nread back, %v:\n%s", generated, err, read)
	}
	if drawing, err := os.ReadFile(plot); err != nil || !strings.HasPrefix(string(drawing), "<svg") {
		t.Errorf("the drawing is %.20q, %v", drawing, err)
	}
}

func TestPlanRefusesWrongInput(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.csv")
	if err := os.WriteFile(bad, []byte("interval,vip,rack,kbit_per_s,backends\n0,shop,rack-1-1,NaN,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"plan traffic --trace " + bad:                    `line 2: rate "NaN" is no number`,
		"plan traffic --traffic 3":                       "must be a number of bit/s with one of the units",
		"plan traffic --traffic 1T --trace x":            "--traffic is of generated traffic, not of a trace",
		"plan traffic --intervals 0":                     "--intervals 0 is not from 1",
		"plan traffic --fabric ../../examples/shop.yaml": "there is no document of the kind Fabric",
		"apply -f ../../deploy/plan/fabric.yaml":         "a manager has none of the kind Fabric: weir plan --fabric reads it",
		"plan traffic --vips 9999999 --traffic 1T":       "9999999 VIPs are not from 1 to",
		"plan traffic --write /nowhere/t.csv --vips 10":  "write /nowhere/t.csv",
	} {
		if _, _, err := run(t, "", strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", args, err, want)
		}
	}
}
