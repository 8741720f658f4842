package netload

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/stream"
)

// Opened is the line that weir lab stream prints when its streams have begun.
const Opened = "opened"

// Streams is a client that holds on, as a process of its own on a node.
type Streams struct {
	cmd    *exec.Cmd
	opened chan struct{} // closed when the streams have begun
	ended  chan struct{} // closed behind the last output
	output bytes.Buffer
	errors bytes.Buffer
	stop   func() bool
}

// StartStreams starts to hold streams from a node; ctx ends them without a result.
func StartStreams(ctx context.Context, lab Lab, node string, config stream.Config) (*Streams, error) {
	ns, err := lab.NS(node)
	if err != nil {
		return nil, err
	}
	s := &Streams{opened: make(chan struct{}), ended: make(chan struct{})}
	s.cmd = exec.Command(lab.Find("weir"), "lab", "stream", string(config.Network), config.Target.String(),
		"--streams", strconv.Itoa(config.Streams), "--interval", config.Interval.String(),
		"--size", strconv.Itoa(config.Size), "--patience", config.Patience.String())
	if config.Source.IsValid() {
		s.cmd.Args = append(s.cmd.Args, "--source", config.Source.String())
	}
	s.cmd.Stderr = &s.errors
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	output, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := ns.Start(s.cmd); err != nil {
		return nil, err
	}
	s.stop = context.AfterFunc(ctx, func() {
		_ = s.cmd.Process.Kill() // fails if it has ended
	})
	go func() {
		defer close(s.ended)
		reader := bufio.NewReader(output)
		if line, err := reader.ReadString('\n'); err == nil && line == Opened+"\n" {
			close(s.opened)
		}
		_, _ = reader.WriteTo(&s.output) // what is missing shows when it is read
	}()
	return s, nil
}

// WaitOpened waits until all streams have opened, or failed to.
func (s *Streams) WaitOpened(ctx context.Context, bound time.Duration) error {
	select {
	case <-s.opened:
		return nil
	case <-s.ended:
		select {
		case <-s.opened: // all have begun, and broken since: Stop tells
			return nil
		default:
		}
		return fmt.Errorf("hold streams: ended at once: %s", s.errors.String())
	case <-time.After(bound):
		return fmt.Errorf("hold streams: not all have begun after %v", bound)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stop ends the streams and returns what the client noticed.
func (s *Streams) Stop() (stream.Result, error) {
	var result stream.Result
	signalled := s.cmd.Process.Signal(unix.SIGTERM)
	<-s.ended
	err := s.cmd.Wait()
	if !s.stop() {
		return result, errors.Join(err, context.Canceled)
	}
	if err := errors.Join(signalled, err); err != nil {
		return result, fmt.Errorf("hold streams: %w: %s", err, s.errors.String())
	}
	if err := json.Unmarshal(s.output.Bytes(), &result); err != nil {
		return result, fmt.Errorf("read what the client noticed: %w: %s", err, s.output.String())
	}
	return result, nil
}
