package netlab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Bound on how long a lab's programs take until they work together.
const readyTime = 45 * time.Second

// errEnded means that there is nothing to wait for any more.
var errEnded = errors.New("has ended")

// Poll asks until the answer is no error, or the bound is over.
func Poll(ctx context.Context, bound time.Duration, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for {
		err := ask()
		if err == nil || errors.Is(err, errEnded) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("gave up: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// WaitReady waits until the manager knows all nodes that take part, and the router all muxes.
func (l *Lab) WaitReady(ctx context.Context) error {
	return Poll(ctx, readyTime, func() error {
		status, err := l.Status()
		if err != nil {
			return err
		}
		for _, n := range l.nodesWithPrograms() {
			if !l.joined(n.Name) {
				continue
			}
			if err := l.ended(n.Name); err != nil {
				return err
			}
			if err := status.Ready(n); err != nil {
				return err
			}
		}
		return nil
	})
}

// joined tells whether a program was ever started on a node.
func (l *Lab) joined(node string) bool {
	l.processesMu.Lock()
	defer l.processesMu.Unlock()
	return slices.ContainsFunc(l.processes, func(p *Process) bool { return p.Node == node })
}

// ended says why a node's program is gone, if it is.
func (l *Lab) ended(node string) error {
	l.processesMu.Lock()
	processes := l.processes
	l.processesMu.Unlock()
	for _, p := range processes {
		if p.Node == node && !p.Running() {
			log := strings.TrimSpace(l.Log(node, p.Name))
			return fmt.Errorf("%s on %s %w: %s", p.Name, node, errEnded, log[strings.LastIndexByte(log, '\n')+1:])
		}
	}
	return nil
}
