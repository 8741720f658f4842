package session

import (
	"fmt"
	"io"
	"time"

	"github.com/weirlb/weir/internal/ctl/output"
	"github.com/weirlb/weir/internal/events"
)

// progressTime is how long something takes before its progress is told, and how often that is at most.
const (
	progressAfter = time.Second
	progressEvery = 200 * time.Millisecond
)

// Progress is a line on a terminal that says how far something is. Elsewhere it says nothing.
type Progress struct {
	to    io.Writer // nil: no terminal
	begun time.Time
	told  time.Time
}

// NewProgress begins; the caller ends it with Done.
func NewProgress(w io.Writer) *Progress {
	p := &Progress{begun: time.Now()}
	if output.IsTerminal(w) {
		p.to = w
	}
	return p
}

// Tell replaces the line, if it is time for that.
func (p *Progress) Tell(format string, args ...any) {
	now := time.Now()
	if p.to == nil || now.Sub(p.begun) < progressAfter || now.Sub(p.told) < progressEvery {
		return
	}
	p.told = now
	text := []rune(events.Printable(fmt.Sprintf(format, args...)))
	if len(text) > widest {
		text = append(text[:widest-1], '…')
	}
	fmt.Fprintf(p.to, "\r\x1b[K%s", string(text))
}

// widest is what fits into one line of most terminals: a longer one would leave a piece of itself behind.
const widest = 78

// Done removes the line.
func (p *Progress) Done() {
	if p.to != nil && !p.told.IsZero() {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}
