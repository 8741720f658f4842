package daemon

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// program is a command with flags of each kind.
type program struct {
	cmd      *cobra.Command
	ran      bool
	manager  string
	hold     time.Duration
	room     int
	insecure bool
	peers    []string
	urls     []string
	pins     string
}

func newProgram() *program {
	p := &program{}
	p.cmd = &cobra.Command{Use: "weir-test", SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error {
		p.ran = true
		return nil
	}}
	flags := p.cmd.Flags()
	flags.StringVar(&p.manager, "manager", "http://127.0.0.1:7400", "URL of the manager")
	flags.DurationVar(&p.hold, "hold-time", 9*time.Second, "silence")
	flags.IntVar(&p.room, "max-rules", 16, "room")
	flags.BoolVar(&p.insecure, "insecure", false, "no TLS")
	flags.StringArrayVar(&p.peers, "peer", nil, "router")
	flags.StringSliceVar(&p.urls, "etcd-endpoints", nil, "URLs")
	PinPathFlag(p.cmd, &p.pins, "/sys/fs/bpf/weir-test")
	p.cmd.AddCommand(&cobra.Command{Use: "status", RunE: func(*cobra.Command, []string) error { return nil }})
	ConfigFlag(p.cmd)
	return p
}

func (p *program) run(t *testing.T, file string, args ...string) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	p.cmd.SetArgs(append(args, "--config", path))
	return p.cmd.Execute()
}

const file = `
# all kinds
manager: https://10.0.0.1:7400
hold-time: 3s
max-rules: 99
insecure: true
peer:
  - address=10.0.0.1,as=65000
  - {address: 10.0.0.2, as: 65000, bfd: 100ms}
etcd-endpoints: [http://10.0.0.5:2379, http://10.0.0.6:2379]
pin-path: /sys/fs/bpf/other
`

func TestFileSetsFlags(t *testing.T) {
	p := newProgram()
	if err := p.run(t, file); err != nil || !p.ran {
		t.Fatal(err)
	}
	if p.manager != "https://10.0.0.1:7400" || p.hold != 3*time.Second || p.room != 99 || !p.insecure || p.pins != "/sys/fs/bpf/other" {
		t.Errorf("flags are %+v", p)
	}
	if got := strings.Join(p.peers, " "); got != "address=10.0.0.1,as=65000 address=10.0.0.2,as=65000,bfd=100ms" {
		t.Errorf("peers are %q", got)
	}
	if got := strings.Join(p.urls, " "); got != "http://10.0.0.5:2379 http://10.0.0.6:2379" {
		t.Errorf("URLs are %q", got)
	}
}

func TestFlagBeatsEnvironmentBeatsFile(t *testing.T) {
	t.Setenv("WEIR_MANAGER", "http://10.0.0.2:7400")
	t.Setenv("WEIR_HOLD_TIME", "4s")
	t.Setenv("WEIR_PEER", "address=10.0.0.3,as=1 address=10.0.0.4,as=1")
	p := newProgram()
	if err := p.run(t, file, "--manager", "http://10.0.0.3:7400", "--insecure=false"); err != nil {
		t.Fatal(err)
	}
	if p.manager != "http://10.0.0.3:7400" || p.insecure {
		t.Errorf("the flags were not heard: %+v", p)
	}
	if p.hold != 4*time.Second || len(p.peers) != 2 || p.peers[1] != "address=10.0.0.4,as=1" {
		t.Errorf("the environment was not heard: %+v", p)
	}
	if p.room != 99 {
		t.Errorf("the file was not heard: %+v", p)
	}
}

// Subcommands know flags of their own only, and read the same file.
func TestSubcommandsReadTheFile(t *testing.T) {
	p := newProgram()
	if err := p.run(t, file, "status"); err != nil || p.pins != "/sys/fs/bpf/other" {
		t.Errorf("pin path is %s, %v", p.pins, err)
	}
}

func TestRefusedFiles(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"hold-tme: 3s", "line 1: hold-tme: is no key: do you mean hold-time?"},
		{"\nsomething-else: 1", "line 2: something-else: is no key of this program"},
		{"config: /etc/other.yaml", "line 1: config: is no key of this program"},
		{"hold-time: soon", `line 1: hold-time: "soon": `},
		{"max-rules: 1\nmax-rules: 2", "max-rules"},
		{"max-rules:", "line 1: max-rules: has no value"},
		{"max-rules: [1, 2]", "line 1: max-rules: must be one value"},
		{"manager: {a: b}", "line 1: manager: must be one value"},
		{"peer: [[a]]", "line 1: peer: line 1: must be one value"},
		{"peer: [{address: [a]}]", "address: must be one value"},
		{"- hold-time", "line 1: must be lines of key: value"},
		{"hold-time: 'x", "line"},
		{"hold-tme: 1\nmax-rule: 2", "line 2: max-rule: is no key: do you mean max-rules?"},
	} {
		p := newProgram()
		err := p.run(t, c.file)
		if err == nil || !strings.Contains(err.Error(), c.want) || p.ran {
			t.Errorf("%q: error is %v, want %q", c.file, err, c.want)
		}
		var coded interface{ ExitCode() int }
		if !asCoded(err, &coded) || coded.ExitCode() != 78 {
			t.Errorf("%q: error %v has not the exit code of a wrong configuration", c.file, err)
		}
	}
	p := newProgram()
	p.cmd.SetArgs([]string{"--config", "no/such.yaml"})
	if err := p.cmd.Execute(); err == nil || !strings.Contains(err.Error(), "no/such.yaml") {
		t.Errorf("a missing file: %v", err)
	}
}

func asCoded(err error, target *interface{ ExitCode() int }) bool {
	coded, ok := err.(interface{ ExitCode() int })
	*target = coded
	return ok
}

// What the printed file says is what holds without it: with each default put in force nothing changes.
func TestPrintedFileHoldsTheDefaults(t *testing.T) {
	p := newProgram()
	var printed bytes.Buffer
	p.cmd.SetOut(&printed)
	p.cmd.SetArgs([]string{"config", "--config", "no/such.yaml"})
	if err := p.cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	inForce := regexp.MustCompile(`(?m)^#([a-z0-9-]+: .+)$`).ReplaceAllString(printed.String(), "$1")
	if strings.Count(inForce, "\n#") >= strings.Count(printed.String(), "\n#") {
		t.Fatalf("no default was found in:\n%s", printed.String())
	}
	q, plain := newProgram(), newProgram()
	if err := q.run(t, inForce); err != nil {
		t.Fatal(err)
	}
	q.cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "config" && f.Value.String() != plain.cmd.Flag(f.Name).Value.String() {
			t.Errorf("%s is %s, by default %s", f.Name, f.Value, plain.cmd.Flag(f.Name).Value)
		}
	})
	if q.cmd.Flag("hold-time").Changed != true {
		t.Error("the file was not read")
	}
}
