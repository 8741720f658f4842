package manifest

import (
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v4"
)

// Bounds of a document, so that a small file can't ask for more memory than there is: its values,
// with aliases written out, and the problems after which reading stops.
const (
	maxValues   = 1 << 18
	maxProblems = 1000
)

// reader walks one document and collects what is wrong with it.
type reader struct {
	source   *source
	places   places
	problems Problems
	refused  map[string]bool // paths of problems
	touched  map[string]bool // those, and all paths around them
	warnings Problems
	values   int
}

// value is a field of a document: where it is and what stands there.
type value struct {
	r    *reader
	path string
	node *yaml.Node // nil: left out
	line int        // of the node, or of what should hold it
}

func (r *reader) value(path string, node *yaml.Node, line int) value {
	for node != nil && node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if r.values++; r.values == maxValues {
		r.refuse(line, path, fmt.Sprintf("is too large: a document holds at most %d values, with aliases written out", maxValues))
	}
	if !r.stopped() && path != "" {
		r.places.at[path] = line
	}
	if r.stopped() || node != nil && node.Tag == "!!null" {
		node = nil
	}
	return value{r: r, path: path, node: node, line: line}
}

func (v value) refuse(format string, args ...any) {
	v.r.refuse(v.line, v.path, fmt.Sprintf(format, args...))
}

func (v value) warn(reason string) {
	v.r.warnings = append(v.r.warnings, v.r.source.problem(v.line, v.path, reason))
}

// stopped says whether the document is not worth reading on.
func (r *reader) stopped() bool { return r.values >= maxValues || len(r.problems) >= maxProblems }

// refuse adds a problem.
func (r *reader) refuse(line int, path, reason string) {
	if r.values > maxValues || len(r.problems) >= maxProblems {
		return // what follows from having stopped
	}
	r.problems = append(r.problems, r.source.problem(line, path, reason))
	r.refused[path] = true
	for ; path != ""; path = around(path) {
		r.touched[path] = true
	}
}

// isReported says whether a problem of path follows from one that was found already: of the field, of one
// around it, or of one inside it.
func (r *reader) isReported(path string) bool {
	if r.touched[path] {
		return true
	}
	for ; path != ""; path = around(path) {
		if r.refused[path] {
			return true
		}
	}
	return false
}

// required refuses v if it was left out.
func (v value) required() value {
	if v.node == nil {
		v.refuse("is required")
	}
	return v
}

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	}
	return quote(n.Value)
}

// quote shortens what a user wrote to what fits in a line.
func quote(s string) string {
	return strconv.Quote(shorten(s, 60))
}

// shorten returns the first letters of s, at most as many as most.
func shorten(s string, most int) string {
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return s
}
