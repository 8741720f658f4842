package plan

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/ctl/session"
)

// run runs weir plan and returns its standard output.
func run(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out strings.Builder
	cmd := Command(session.New(nil))
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestPlanTraffic(t *testing.T) {
	dir := t.TempDir()
	trace, plot := filepath.Join(dir, "t.csv"), filepath.Join(dir, "f.svg")
	generated, err := run(t, "traffic", "--fabric", "../../../deploy/plan/fabric.yaml", "--vips", "200",
		"--traffic", "1T", "--intervals", "2", "--write", trace, "--plot", plot)
	if err != nil {
		t.Fatal(err)
	}
	read, err := run(t, "traffic", "--fabric", "../../../deploy/plan/fabric.yaml", "--trace", trace)
	if err != nil || read != generated {
		t.Errorf("generated:\n%s\nread back, %v:\n%s", generated, err, read)
	}
	if drawing, err := os.ReadFile(plot); err != nil || !strings.HasPrefix(string(drawing), "<svg") {
		t.Errorf("the drawing is %.20q, %v", drawing, err)
	}
}

func TestPlanFigures(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "figures")
	out, err := run(t, "figures", "--fabric", "../../../deploy/plan/fabric.yaml", "--vips", "200", "--traffic", "500G",
		"--intervals", "2", "--folder", folder, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"traffic", "muxes", "latency", "failures", "trace-coverage", "trace-moved", "trace-muxes"} {
		drawing, err := os.ReadFile(filepath.Join(folder, name+".svg"))
		if err != nil || !strings.HasPrefix(string(drawing), "<svg") || strings.Contains(string(drawing), "NaN") {
			t.Errorf("the drawing of %s is %.20q, %v", name, drawing, err)
		}
		values, err := os.ReadFile(filepath.Join(folder, name+".csv"))
		if lines := strings.Count(string(values), "\n"); err != nil || !strings.HasPrefix(string(values), "line,x,y\n") || lines < 3 {
			t.Errorf("the values of %s are %d lines, %v", name, lines, err)
		}
		if !strings.Contains(out, name+".csv") {
			t.Errorf("%s is not in the output %s", name, out)
		}
	}
}

func TestPlanRefusesWrongInput(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.csv")
	trace := []byte("interval,vip,rack,kbit_per_s,backends\n0,shop,rack-1-1,NaN,1\n")
	if err := os.WriteFile(bad, trace, 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"traffic --trace " + bad:                       `line 2: rate "NaN" is no number`,
		"traffic --traffic 3":                          "must be a number of bit/s with one of the units",
		"traffic --traffic 1T --trace x":               "--traffic is of generated traffic, not of a trace",
		"traffic --intervals 0":                        "--intervals 0 is not from 1",
		"traffic --vips 0":                             "--vips must not be 0",
		"capacity --vips 10 --interval -3":             "the traffic has no interval -3",
		"traffic --fabric ../../../examples/shop.yaml": "there is no document of the kind Fabric",
		"traffic --vips 9999999 --traffic 1T":          "9999999 VIPs are not from 1 to",
		"figures --profile fast":                       `--profile "fast" is none of paper2014, measured`,
		"figures --vips 10 --folder /dev/null/x":       "make the folder of figures",
		"traffic --write /nowhere/t.csv --vips 10":     "write /nowhere/t.csv",
	} {
		if _, err := run(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", args, err, want)
		}
	}
}
