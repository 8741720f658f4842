package turns

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// Process is a benchmark that measures when it is asked to.
type Process struct {
	Names []string // of its measurements

	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
}

// Start runs a benchmark with "-turns CPU", whose main function calls Serve. Ready waits until it is ready.
func Start(program string, cpu int) (p *Process, err error) {
	p = &Process{command: exec.Command(program, "-turns", strconv.Itoa(cpu))}
	p.command.Stderr = os.Stderr
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's interrupt is the caller's, who closes stdin
	if p.in, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewScanner(out)
	return p, p.command.Start()
}

// Ready waits until the process has named its measurements.
func (p *Process) Ready() error {
	line, err := p.line()
	p.Names = strings.Fields(line)
	return err
}

// Measure has the process take a measurement.
func (p *Process) Measure(name string) (nanos float64, err error) {
	if _, err := fmt.Fprintln(p.in, name); err != nil {
		return 0, fmt.Errorf("ask %s for %s: %w", p.command.Path, name, err)
	}
	line, err := p.line()
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(line, 64)
}

func (p *Process) line() (string, error) {
	if !p.out.Scan() {
		return "", fmt.Errorf("read from %s: %w", p.command.Path, io.ErrUnexpectedEOF)
	}
	return p.out.Text(), nil
}

// Close ends the process, which removes what it made.
func (p *Process) Close() error {
	_ = p.in.Close()
	return p.command.Wait()
}
