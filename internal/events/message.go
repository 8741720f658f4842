package events

import (
	"strings"
	"unicode"
)

// MaxMessage bounds what is kept of the words of a node, in bytes.
const MaxMessage = 256

// CutMessage cuts what a node tells to what is kept of it, between two letters, without what a terminal obeys.
func CutMessage(text string) string {
	return Printable(text[:min(len(text), MaxMessage)])
}

// Printable is a text of somebody else in one line, without what a terminal obeys.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
}
