package model

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// FieldError is one reason to refuse a resource: the field's path and what is wrong with it.
type FieldError struct {
	Field  string // "endpoints[0].backends[2].weight"
	Reason string // "must be at most 1000000, is 2000000"
	More   int    // of the last of a list that is cut: for how many it stands
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

// FieldErrors returns the FieldErrors that err joins, in order.
func FieldErrors(err error) (all []*FieldError) {
	var field *FieldError
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			all = append(all, FieldErrors(e)...)
		}
	} else if errors.As(err, &field) {
		all = append(all, field)
	}
	return all
}

// MaxFieldErrors bounds how many reasons a refusal tells: a request can be wrong at hundreds of thousands of places.
const MaxFieldErrors = 64

// FieldErrorList collects FieldErrors up to MaxFieldErrors, and counts those beyond. Its zero value is empty.
type FieldErrorList struct {
	errs   []error
	beyond FieldError // the first field of those, and how many they are
}

// Refuse collects a reason why a field is wrong.
func (l *FieldErrorList) Refuse(field, format string, args ...any) {
	e := &FieldError{Field: field}
	if l.Len() < MaxFieldErrors {
		e.Reason = fmt.Sprintf(format, args...)
	}
	l.Add(e)
}

// Add collects the FieldErrors that err joins. What stands for several is only counted.
func (l *FieldErrorList) Add(err error) {
	for _, e := range FieldErrors(err) {
		if e.More == 0 && l.Len() < MaxFieldErrors {
			l.errs = append(l.errs, e)
		} else {
			l.beyond.Field, l.beyond.More = cmp.Or(l.beyond.Field, e.Field), l.beyond.More+max(e.More, 1)
		}
	}
}

// Below is Add, with the paths put below path.
func (l *FieldErrorList) Below(path string, err error) {
	for _, e := range FieldErrors(err) {
		l.Add(&FieldError{path + "." + e.Field, e.Reason, e.More})
	}
}

// Len is how many were collected.
func (l *FieldErrorList) Len() int { return len(l.errs) + l.beyond.More }

// Err joins what was collected; nil: nothing was. The last says of how many others only the number is known.
func (l *FieldErrorList) Err() error {
	if last := l.beyond; last.More > 0 {
		last.Reason = fmt.Sprintf("%d fields from here on are wrong too: they are told when those before are mended", last.More)
		return errors.Join(append(slices.Clip(l.errs), &last)...)
	}
	return errors.Join(l.errs...)
}
