package importer

import (
	"errors"
	"fmt"
	"strings"
)

// statement is a line of keepalived.conf: words, and what stands in braces behind them.
type statement struct {
	line  int
	words []string
	block []statement // nil: there is none
}

// parseStatements reads the text of keepalived.conf. A statement ends with its line, or where its block begins.
func parseStatements(text string) ([]statement, error) {
	p := &statements{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		if err := p.line(number, line); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if len(p.open) > 0 {
		return nil, fmt.Errorf("line %d: a { is not closed", p.open[len(p.open)-1].line)
	}
	return p.done, nil
}

// statements are those read so far, and the blocks that are open.
type statements struct {
	done []statement
	open []statement
}

func (p *statements) add(s statement) {
	if n := len(p.open); n > 0 {
		p.open[n-1].block = append(p.open[n-1].block, s)
		return
	}
	p.done = append(p.done, s)
}

// takeLast takes the last statement back: its block begins on the line after it.
func (p *statements) takeLast() (s statement, ok bool) {
	list := &p.done
	if n := len(p.open); n > 0 {
		list = &p.open[n-1].block
	}
	if n := len(*list); n > 0 && (*list)[n-1].block == nil {
		s = (*list)[n-1]
		*list = (*list)[:n-1]
		return s, true
	}
	return s, false
}

func (p *statements) line(number int, line string) error {
	words, err := split(line)
	if err != nil {
		return err
	}
	s := statement{line: number}
	for _, w := range words {
		switch w {
		case "{":
			if len(s.words) == 0 {
				var ok bool
				if s, ok = p.takeLast(); !ok {
					return errors.New("a { has nothing before it")
				}
			}
			if len(p.open) == mostDepth {
				return fmt.Errorf("blocks are more than %d deep", mostDepth)
			}
			s.block = []statement{}
			p.open = append(p.open, s)
			s = statement{line: number}
		case "}":
			if len(s.words) > 0 {
				p.add(s)
				s = statement{line: number}
			}
			n := len(p.open)
			if n == 0 {
				return errors.New("a } has no {")
			}
			closed := p.open[n-1]
			p.open = p.open[:n-1]
			p.add(closed)
		default:
			s.words = append(s.words, strings.Trim(w, `"`))
		}
	}
	if len(s.words) > 0 {
		p.add(s)
	}
	return nil
}

// split cuts a line into words, braces and quoted texts. A comment begins with # or !.
func split(line string) (words []string, err error) {
	for i := 0; i < len(line); {
		switch line[i] {
		case ' ', '\t', '\n', '\r':
			i++
		case '#', '!':
			return words, nil
		case '{', '}':
			words = append(words, line[i:i+1])
			i++
		case '"':
			end := strings.IndexByte(line[i+1:], '"')
			if end < 0 {
				return nil, errors.New("a quote is not closed")
			}
			words = append(words, line[i:i+end+2])
			i += end + 2
		default:
			end := strings.IndexAny(line[i:], " \t\r\n{}\"#!")
			if end < 0 {
				end = len(line) - i
			}
			words = append(words, line[i:i+max(end, 1)])
			i += max(end, 1)
		}
	}
	return words, nil
}
