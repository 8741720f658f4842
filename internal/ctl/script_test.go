package ctl

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weirlb/weir/internal/daemon"
	"github.com/weirlb/weir/internal/manager"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/rpc"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"weir": func() { os.Exit(daemon.Run(Command(Config{}))) },
	})
}

// TestScripts runs the program against a real manager with its embedded store. Muxes and hosts are
// clients of the real streams that pretend to have a data plane.
func TestScripts(t *testing.T) {
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("EXAMPLES", examples)
			env.Values[nodesKey{}] = map[string]*node{}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"manager":    startManager,
			"mux":        startMux,
			"host":       startHost,
			"switch":     startSwitch,
			"disconnect": disconnect,
			"report":     reportHealth,
			"await":      await,
			"exitcode":   exitCode,
			"vips":       writeVIPs,
		},
	})
}

// startManager starts a manager and makes it the one that weir talks to, as its first user if it is secure.
func startManager(ts *testscript.TestScript, neg bool, args []string) {
	secure := len(args) > 0 && args[0] == "secure"
	everywhere := secure && slices.Equal(args[1:], []string{"everywhere"})
	if neg || len(args) > 0 && !secure || len(args) > 1 && !everywhere {
		ts.Fatalf("usage: manager [secure [everywhere]]")
	}
	listen := "127.0.0.1:0"
	if everywhere {
		listen = "0.0.0.0:0"
	}
	ctx, cancel := context.WithCancel(context.Background())
	m, err := manager.New(ctx, manager.Config{
		Insecure: !secure,
		Listen:   listen, DataDir: ts.MkAbs("data"), Version: "test", Log: slog.New(slog.DiscardHandler),
	})
	ts.Check(err)
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	ts.Defer(func() {
		cancel()
		if err := <-done; err != nil {
			ts.Logf("the manager ended: %v", err)
		}
		m.Close()
	})
	if secure {
		ts.Setenv(rpc.ConfigVariable, pki.AdminFile(ts.MkAbs("data")))
		return
	}
	ts.Setenv(rpc.ManagerVariable, "http://"+m.Address().String())
}

// writeVIPs writes a manifest of many VIPs, each with a backend of its own port on host2.
func writeVIPs(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: vips NUMBER FILE")
	}
	number, err := strconv.Atoi(args[0])
	ts.Check(err)
	var text bytes.Buffer
	for i := range number {
		fmt.Fprintf(&text, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: vip%04d}\nspec:\n  address: 203.0.%d.%d\n", i, 100+i/250, 1+i%250)
		fmt.Fprintf(&text, "  endpoints: [{port: 80, backends: [{host: host2, address: 10.3.2.11, port: %d}]}]\n", 1000+i)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), text.Bytes(), 0o644))
}

// awaitTime bounds await.
const awaitTime = 20 * time.Second

// await runs a command until its standard output matches.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await PATTERN COMMAND...")
	}
	pattern := regexp.MustCompile("(?m)" + args[0])
	for deadline := time.Now().Add(awaitTime); ; {
		err := ts.Exec(args[1], args[2:]...)
		out := ts.ReadFile("stdout")
		if err == nil && pattern.MatchString(out) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%q did not come, the last output was (%v)\n%s%s", args[0], err, out, ts.ReadFile("stderr"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// exitCode holds that a command ends with a code.
func exitCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exitcode CODE COMMAND...")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var coded interface{ ExitCode() int }
	if errorsAs(err, &coded) {
		code = coded.ExitCode()
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("ended with %d (%v), want %s", code, err, args[0])
	}
}

// run runs the program in this process, at a fixed time, and returns what it wrote.
func run(t *testing.T, managers string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	root := Command(Config{Now: func() time.Time { return now }})
	root.SetArgs(append([]string{"--manager", managers}, args...))
	root.SetOut(&out)
	root.SetErr(&errOut)
	root.SilenceErrors, root.SilenceUsage = true, true
	err = root.ExecuteContext(t.Context())
	return out.String(), errOut.String(), err
}
