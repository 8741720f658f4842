package manifest

import (
	"fmt"
	"strings"
)

// Problem is one thing that is wrong with a file.
type Problem struct {
	File   string
	Line   int    // from 1; 0: the file as a whole
	Field  string // as the file spells it: "spec.endpoints[0].port"; empty: the document
	Reason string
	Source string // the line as it stands in the file
}

// Error is "shop.yaml:7: spec.endpoints[0].port: must be ...".
func (p *Problem) Error() string {
	where := p.File
	if p.Line > 0 {
		where = fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	if p.Field != "" {
		where += ": " + p.Field
	}
	return where + ": " + p.Reason
}

// String is Error with the source below it.
func (p *Problem) String() string {
	if strings.TrimSpace(p.Source) == "" {
		return p.Error()
	}
	return fmt.Sprintf("%s\n%6d | %s", p.Error(), p.Line, p.Source)
}

// Problems are all that is wrong, by line.
type Problems []*Problem

// mostTold bounds the problems that Error tells.
const mostTold = 20

func (all Problems) Error() string {
	var text strings.Builder
	for i, p := range all {
		if i == mostTold {
			fmt.Fprintf(&text, "\nand %d more", len(all)-i)
			break
		}
		if i > 0 {
			text.WriteByte('\n')
		}
		text.WriteString(p.String())
	}
	return text.String()
}

// mostSource bounds what is told of a line, in letters.
const mostSource = 160

// source is a file by lines.
type source struct {
	name  string
	lines []string
}

func (s *source) problem(line int, field, reason string) *Problem {
	p := &Problem{File: s.name, Line: line, Field: field, Reason: reason}
	if line >= 1 && line <= len(s.lines) {
		p.Source = shorten(strings.TrimRight(s.lines[line-1], " \t\r"), mostSource)
	}
	return p
}

// places knows the line of each field of a document that was read.
type places struct {
	source   *source
	line     int                 // of the document
	at       map[string]int      // by path, as the file spells it
	spelling func(string) string // from a path of the model to the file's
}

func (p places) spell(path string) string {
	if p.spelling == nil {
		return path
	}
	return p.spelling(path)
}

// lineOf returns the line of the field, or of the nearest one around it that the file has.
func (p places) lineOf(path string) int {
	for path != "" {
		if line, ok := p.at[path]; ok {
			return line
		}
		path = around(path)
	}
	return p.line
}

// around returns the path of what holds the field: "a[0]" of "a[0].b", "a" of "a[0]", "" of "a".
func around(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

func (p places) problem(path, reason string) *Problem {
	return p.source.problem(p.lineOf(path), path, reason)
}

// where is "shop.yaml:7", the place of a field by its path in the model.
func (p places) where(path string) string {
	return fmt.Sprintf("%s:%d", p.source.name, p.lineOf(p.spell(path)))
}
