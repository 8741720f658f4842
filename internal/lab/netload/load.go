package netload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/load"
)

// Load is a load client that runs on a node, as a process of its own.
type Load struct {
	cmd    *exec.Cmd
	output bytes.Buffer
	errors bytes.Buffer
	stop   func() bool
}

// StartLoad starts making requests from a node; it ends with ctx.
func StartLoad(ctx context.Context, lab Lab, node string, config load.Config) (*Load, error) {
	ns, err := lab.NS(node)
	if err != nil {
		return nil, err
	}
	run := &Load{}
	run.cmd = exec.Command(lab.Find("weir"), "lab", "load", config.URL,
		"--requests", strconv.Itoa(config.Requests), "--duration", config.Duration.String(),
		"--concurrency", strconv.Itoa(config.Concurrency), "--rate", strconv.Itoa(config.Rate),
		"--per-connection", strconv.Itoa(config.PerConn), "--timeout", config.Timeout.String(),
		"--attempts", strconv.Itoa(config.Attempts), "--record="+strconv.FormatBool(config.Record))
	run.cmd.Stdout, run.cmd.Stderr = &run.output, &run.errors
	run.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	if err := ns.Start(run.cmd); err != nil {
		return nil, err
	}
	run.stop = context.AfterFunc(ctx, func() {
		_ = run.cmd.Process.Kill() // fails if it has ended
	})
	return run, nil
}

// Wait waits for the end and returns what the client noticed.
func (r *Load) Wait() (load.Result, error) {
	var result load.Result
	err := r.cmd.Wait()
	if !r.stop() {
		return result, errors.Join(err, context.Canceled)
	}
	if err != nil {
		return result, fmt.Errorf("make requests: %w: %s", err, r.errors.String())
	}
	if err := json.Unmarshal(r.output.Bytes(), &result); err != nil {
		return result, fmt.Errorf("read what the client noticed: %w", err)
	}
	return result, nil
}

// Stop ends the requests before their time, those that are under way left out, and returns what the
// client noticed.
func (r *Load) Stop() (load.Result, error) {
	if err := r.cmd.Process.Signal(unix.SIGTERM); err != nil {
		return load.Result{}, fmt.Errorf("stop making requests: %w", err)
	}
	return r.Wait()
}

// RunLoad makes requests from a node and returns what the client noticed.
func RunLoad(ctx context.Context, lab Lab, node string, config load.Config) (load.Result, error) {
	run, err := StartLoad(ctx, lab, node, config)
	if err != nil {
		return load.Result{}, err
	}
	return run.Wait()
}
