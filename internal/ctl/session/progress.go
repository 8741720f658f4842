package session

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/internal/ctl/output"
	"github.com/weirlb/weir/internal/events"
)

// How long something takes before its progress is told, and how often the line is drawn.
const (
	progressAfter = time.Second
	progressEvery = 200 * time.Millisecond
)

// Progress is a line on a terminal that says how far something is, and how long it has taken. Elsewhere it says nothing.
type Progress struct {
	mu   sync.Mutex
	text string

	done func() // removes the line; nil: there is none
}

// Progress begins one of the command; the caller ends it with Done. Within it another one says nothing.
func (s *Session) Progress(w io.Writer) *Progress {
	p := &Progress{}
	if !output.IsTerminal(w) || !s.progresses.CompareAndSwap(false, true) {
		return p
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		p.draw(w, stop)
	}()
	p.done = sync.OnceFunc(func() {
		close(stop)
		<-ended
		s.progresses.Store(false)
	})
	return p
}

// HoldProgress has nothing tell its progress any more: the command, or another program, has the terminal to itself.
func (s *Session) HoldProgress() { s.progresses.Store(true) }

// draw draws the line until stop, and removes it.
func (p *Progress) draw(w io.Writer, stop <-chan struct{}) {
	begun, drawn := time.Now(), false
	timer := time.NewTimer(progressAfter)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			if drawn {
				fmt.Fprint(w, "\r\x1b[K")
			}
			return
		case <-timer.C:
			timer.Reset(progressEvery)
		}
		p.mu.Lock()
		text := []rune(events.Printable(p.text))
		p.mu.Unlock()
		if len(text) == 0 {
			continue
		}
		took := fmt.Sprintf("  %ds", int(time.Since(begun).Seconds()))
		if most := widest - len(took); len(text) > most {
			text = append(text[:most-1], '…')
		}
		fmt.Fprintf(w, "\r\x1b[K%s%s", string(text), took)
		drawn = true
	}
}

// Tell replaces the line.
func (p *Progress) Tell(format string, args ...any) {
	if p.done == nil {
		return
	}
	text := fmt.Sprintf(format, args...)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = text
}

// widest is what fits into one line of most terminals: a longer one would leave a piece of itself behind.
const widest = 78

// Done removes the line.
func (p *Progress) Done() {
	if p.done != nil {
		p.done()
	}
}

// waits has a call that takes long be seen on a terminal.
func (s *Session) waits(managers string) connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
			p := s.Progress(s.errOut)
			defer p.Done()
			p.Tell("waiting for %s", managers)
			return next(ctx, r)
		}
	}
}
