package output

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/charmbracelet/x/term"
)

// Color is the value of --color. It is a pflag.Value.
type Color string

// When states are coloured. Auto: on a terminal, unless NO_COLOR is set (no-color.org).
const (
	ColorAuto   Color = "auto"
	ColorAlways Color = "always"
	ColorNever  Color = "never"
)

// Colors are all values of --color.
var colors = []Color{ColorAuto, ColorAlways, ColorNever}

func (c *Color) String() string { return string(*c) }

// Type is what help calls the value.
func (c *Color) Type() string { return "when" }

// Set reads the flag.
func (c *Color) Set(s string) error {
	if !slices.Contains(colors, Color(s)) {
		return fmt.Errorf("must be auto, always or never, is %q", s)
	}
	*c = Color(s)
	return nil
}

// Of is w, or a Painter of it if states are to be coloured there.
func (c Color) Of(w io.Writer, getenv func(string) string) io.Writer {
	if c == ColorAlways || c == ColorAuto && IsTerminal(w) && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb" {
		return Painter{w}
	}
	return w
}

// IsTerminal says whether a person may sit there.
func IsTerminal(w io.Writer) bool {
	if p, ok := w.(Painter); ok {
		w = p.Writer
	}
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(file.Fd())
}

// Painter is where states are coloured.
type Painter struct{ io.Writer }

// Shade says how good a state is.
type Shade int

// The shades.
const (
	Plain Shade = iota
	Good
	Doubtful
	Bad
)

// Paint writes text in the colour of its shade. The words say the same.
func (s Shade) Paint(text string) string {
	switch s {
	case Good:
		return "\x1b[32m" + text + "\x1b[0m"
	case Doubtful:
		return "\x1b[33m" + text + "\x1b[0m"
	case Bad:
		return "\x1b[31m" + text + "\x1b[0m"
	case Plain:
	}
	return text
}
