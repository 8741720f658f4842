package events

import (
	"strings"
	"unicode"
)

// MaxMessage bounds what is kept of the words of a node, in bytes.
const MaxMessage = 256

// CutMessage cuts what a node tells to what is kept of it, between two letters, without what a terminal obeys.
func CutMessage(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text[:min(len(text), MaxMessage)], ""))
}
