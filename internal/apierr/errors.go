package apierr

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/sorted"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/trust"
	"github.com/weirlb/weir/internal/typo"
)

// TooLarge is the error of a request of more bytes than its procedure takes.
func TooLarge(size, most int64) error {
	return connect.NewError(connect.CodeResourceExhausted,
		fmt.Errorf("the request has %d bytes, more than %d: apply fewer VIPs at a time", size, most))
}

// Unauthenticated is the error of a caller without a valid credential: why it is not, or which to show.
func Unauthenticated(caller trust.Identity) error {
	reason := caller.Reason
	if reason == "" {
		reason = "show a client certificate or a bearer token"
	}
	return connect.NewError(connect.CodeUnauthenticated, errors.New(reason))
}

// NotFound is the error of a name that no resource of a kind has. It suggests the nearest name of a resource that the
// caller may see.
func NotFound[T any](what, name string, there sorted.Map[string, T], visible func(T) bool) error {
	var names []string
	for other, t := range there.All() {
		if visible(t) {
			names = append(names, other)
		}
	}
	guess := typo.Nearest(name, names)
	if guess != "" {
		guess = fmt.Sprintf(", did you mean %s?", guess)
	}
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no %s %.64q%s", what, name, guess))
}

// VersionTooOld is the error of a watch from a resource version that the change log does not reach back to.
func VersionTooOld(version uint64) error {
	return connect.NewError(connect.CodeOutOfRange, fmt.Errorf(
		"what happened since resource version %d is not known here any more: list again, and watch from the resource version of the list", version))
}

// CheckName refuses a resource whose name is set, and is not the one that the call names.
func CheckName(call, resource string) error {
	if resource == "" || resource == call {
		return nil
	}
	return &model.FieldError{Field: "name", Reason: fmt.Sprintf("must be %.64q, which the call is about, or left out, is %.64q", call, resource)}
}

// VersionConflict is the error of a write for another version of a resource than the present one.
func VersionConflict(what string, there, version uint64, record codec.Record) error {
	by := ""
	if record.By != "" {
		by = " by " + record.By
	}
	if !record.Updated.IsZero() {
		by += " at " + record.Updated.UTC().Format(time.RFC3339)
	}
	return connect.NewError(connect.CodeAborted, fmt.Errorf(
		"%s is of version %d, written%s, and not of %d: read it again and repeat the change", what, there, by, version))
}

// TrimField cuts a prefix such as "vips[0]." off the paths of field errors: a call about one resource names its fields alone.
func TrimField(prefix string, err error) error {
	var refused *connect.Error
	all := model.FieldErrors(err)
	if errors.As(err, &refused) || len(all) == 0 {
		return err
	}
	errs := make([]error, 0, len(all))
	for _, e := range all {
		errs = append(errs, &model.FieldError{Field: strings.TrimPrefix(e.Field, prefix), Reason: e.Reason})
	}
	return errors.Join(errs...)
}
