package limits

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/weirlb/weir/internal/model"
)

// most is how many fields beyond their bounds an error names.
const most = 16

// maxDepth bounds how deep messages lie in each other; only patches are deeper than a few.
const maxDepth = 64

// Check says which texts, lists and maps of a message are beyond their bounds, as joined FieldErrors.
func Check(m proto.Message) error {
	c := checker{}
	c.message(m.ProtoReflect())
	return errors.Join(c.errs...)
}

// Cut cuts texts, lists and maps of a message to their bounds: what a node says of itself is not refused for its length.
func Cut(m proto.Message) {
	c := checker{cut: true}
	c.message(m.ProtoReflect())
}

type checker struct {
	cut  bool
	path []step // to what is looked at
	errs []error
}

// step is one step of a path: a field, and which of its elements or entries.
type step struct {
	field protoreflect.FieldDescriptor
	at    int // -1: the field as a whole
	key   string
}

// fields has the bounds of fields by their descriptors, so that a look does not hash names.
var fields sync.Map // of Field by protoreflect.FieldDescriptor

func boundOf(f protoreflect.FieldDescriptor) Field {
	if b, there := fields.Load(f); there {
		return b.(Field) //nolint:forcetypeassert // nothing else is stored
	}
	b := OfField(f)
	fields.Store(f, b)
	return b
}

// refuse names what the path leads to.
func (c *checker) refuse(format string, args ...any) {
	if c.full() {
		return
	}
	var path strings.Builder
	for i, s := range c.path {
		if i > 0 {
			path.WriteByte('.')
		}
		path.WriteString(s.field.JSONName())
		if s.at >= 0 {
			fmt.Fprintf(&path, "[%d]", s.at)
		}
		if s.key != "" {
			fmt.Fprintf(&path, "[%.64q]", s.key)
		}
	}
	c.errs = append(c.errs, &model.FieldError{Field: path.String(), Reason: fmt.Sprintf(format, args...)})
}

func (c *checker) full() bool { return len(c.errs) >= most }

func (c *checker) message(m protoreflect.Message) {
	if len(c.path) > maxDepth {
		c.refuse("must be at most %d deep", maxDepth)
		return
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		c.path = append(c.path, step{field: f, at: -1})
		switch {
		case f.IsList():
			c.list(m, f, v.List())
		case f.IsMap():
			c.entries(m, f, v.Map())
		case f.Message() != nil:
			c.message(v.Message())
		case isText(f):
			if cut, long := c.text(f, v, boundOf(f).Text); long {
				m.Set(f, cut)
			}
		}
		c.path = c.path[:len(c.path)-1]
		return !c.full()
	})
}

func isText(f protoreflect.FieldDescriptor) bool {
	return f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind
}

func (c *checker) list(m protoreflect.Message, f protoreflect.FieldDescriptor, list protoreflect.List) {
	b := boundOf(f)
	if n := list.Len(); n > b.List {
		if !c.cut {
			c.refuse("must have at most %d elements, has %d", b.List, n)
			return
		}
		list = m.Mutable(f).List()
		list.Truncate(b.List)
	}
	if f.Message() == nil && !isText(f) {
		return
	}
	last := len(c.path) - 1
	for i := range list.Len() {
		c.path[last].at = i
		if f.Message() != nil {
			c.message(list.Get(i).Message())
		} else if cut, long := c.text(f, list.Get(i), b.Text); long {
			list.Set(i, cut)
		}
		if c.full() {
			return
		}
	}
}

func (c *checker) entries(m protoreflect.Message, f protoreflect.FieldDescriptor, entries protoreflect.Map) {
	b := boundOf(f)
	if n := entries.Len(); n > b.List {
		if c.cut {
			m.Clear(f)
		} else {
			c.refuse("must have at most %d entries, has %d", b.List, n)
		}
		return
	}
	last := len(c.path) - 1
	entries.Range(func(key protoreflect.MapKey, v protoreflect.Value) bool {
		c.path[last].key = key.String()
		if n := len(key.String()); n > b.Text {
			c.refuse("must have a key of at most %d bytes, has one of %d", b.Text, n)
		}
		switch {
		case f.MapValue().Message() != nil:
			c.message(v.Message())
		case isText(f.MapValue()):
			if cut, long := c.text(f.MapValue(), v, b.Text); long {
				entries.Set(key, cut)
			}
		}
		return !c.full()
	})
}

// text looks at one text. If it is to be cut, it returns what is left of it.
func (c *checker) text(f protoreflect.FieldDescriptor, v protoreflect.Value, bound int) (cut protoreflect.Value, long bool) {
	n := 0
	if f.Kind() == protoreflect.BytesKind {
		n = len(v.Bytes())
	} else {
		n = len(v.String())
	}
	switch {
	case n <= bound:
		return v, false
	case !c.cut:
		c.refuse("must have at most %d bytes, has %d", bound, n)
		return v, false
	case f.Kind() == protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(v.Bytes()[:bound]), true
	}
	return protoreflect.ValueOfString(shorten(v.String(), bound)), true
}

// ellipsis ends a text that was cut.
const ellipsis = "..."

// shorten cuts a text to so many bytes, between characters.
func shorten(s string, bound int) string {
	end := bound - len(ellipsis)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + ellipsis
}
