package compile

import (
	"fmt"
	"strings"

	"github.com/weirlb/weir/internal/model"
)

// refusals are what is wrong with the fields of a message. Paths are those of the JSON that users write.
type refusals struct {
	errs   model.FieldErrorList
	within []place // where the message lies that is read: its path is written only for an error
}

// place is a message of a message; an index of -1 is no element of a list.
type place struct {
	field string
	index int
}

// enter begins the reading of a message in a field; leave ends it.
func (r *refusals) enter(field string, index int) { r.within = append(r.within, place{field, index}) }

func (r *refusals) leave() { r.within = r.within[:len(r.within)-1] }

// path is that of a field of the message that is read; an empty field is the message itself.
func (r *refusals) path(field string) string {
	var path strings.Builder
	for _, p := range r.within {
		path.WriteString(p.field)
		if p.index >= 0 {
			fmt.Fprintf(&path, "[%d]", p.index)
		}
		path.WriteByte('.')
	}
	return strings.TrimSuffix(path.String()+field, ".")
}

// Refuse collects a reason why the field at path is wrong.
func (r *refusals) Refuse(path, format string, args ...any) {
	r.errs.Refuse(r.path(path), format, args...)
}

// Err joins what was refused; nil: nothing was.
func (r *refusals) Err() error { return r.errs.Err() }

// Add takes over the field errors of a check of the whole value, except where reading the field
// failed already.
func (r *refusals) Add(err error) {
	refused := map[string]bool{}
	for _, e := range model.FieldErrors(r.Err()) {
		refused[e.Field] = true
	}
	for _, e := range model.FieldErrors(err) {
		if !refused[e.Field] || e.More > 0 {
			r.errs.Add(e)
		}
		refused[e.Field] = true
	}
}
