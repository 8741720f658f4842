package apierr

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/internal/election"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/sorted"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/codec"
)

func TestCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want connect.Code
	}{
		{&model.FieldError{Field: "vips[0].name", Reason: "is required"}, connect.CodeInvalidArgument},
		{election.ErrNotLeader, connect.CodeUnavailable},
		{&store.OverloadedError{After: time.Second}, connect.CodeResourceExhausted},
		{&etcd.NoSpaceError{}, connect.CodeResourceExhausted},
		{&store.UnknownFormError{}, connect.CodeFailedPrecondition},
		{context.Canceled, connect.CodeCanceled},
		{connect.NewError(connect.CodeNotFound, errors.New("gone")), connect.CodeNotFound},
		{errors.New("disk"), connect.CodeUnavailable},
	} {
		if got := connect.CodeOf(ToConnect(c.err)); got != c.want {
			t.Errorf("%T: got %s, want %s", c.err, got, c.want)
		}
	}
	if err := ToConnect(nil); err != nil {
		t.Errorf("of no error: %v", err)
	}
}

func TestNotFoundSuggestsWhatTheCallerSees(t *testing.T) {
	vips := sorted.Of(map[string]bool{"shop": true, "shoppy": false})
	err := NotFound("VIP", "shopp", vips, func(visible bool) bool { return visible })
	if connect.CodeOf(err) != connect.CodeNotFound || !strings.HasSuffix(err.Error(), "did you mean shop?") {
		t.Error(err)
	}
}

func TestVersionConflictNamesTheWriter(t *testing.T) {
	err := VersionConflict("VIP shop", 7, 5, codec.Record{By: "user/ann", Updated: time.Unix(0, 0)})
	if want := "VIP shop is of version 7, written by user/ann at 1970-01-01T00:00:00Z, and not of 5"; !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestTrimField(t *testing.T) {
	err := TrimField("vips[0].", errors.Join(&model.FieldError{Field: "vips[0].name"}, &model.FieldError{Field: "pools[0].name"}))
	if fields := model.FieldErrors(err); len(fields) != 2 || fields[0].Field != "name" || fields[1].Field != "pools[0].name" {
		t.Errorf("got %v", fields)
	}
	refused := connect.NewError(connect.CodeAborted, errors.New("late"))
	if got := TrimField("vips[0].", refused); !errors.Is(got, refused) {
		t.Errorf("got %v", got)
	}
}

func TestCheckName(t *testing.T) {
	for _, resource := range []string{"", "shop"} {
		if err := CheckName("shop", resource); err != nil {
			t.Error(err)
		}
	}
	if err := CheckName("shop", "web"); len(model.FieldErrors(err)) != 1 {
		t.Errorf("got %v", err)
	}
}

// A request gets its error in its own protocol.
func TestWrite(t *testing.T) {
	for _, c := range []struct {
		contentType, want string
		code              int
	}{
		{"application/proto", `"code":"not_found"`, http.StatusNotFound},
		{"application/json", `"message":"gone"`, http.StatusNotFound},
		{"application/grpc", "", http.StatusOK},
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/vips", strings.NewReader("x"))
		r.Header.Set("Content-Type", c.contentType)
		w := httptest.NewRecorder()
		Write(w, r, connect.NewError(connect.CodeNotFound, errors.New("gone")))
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: got %d %s", c.contentType, w.Code, w.Body)
		}
		if w.Header().Get("Connection") != "close" {
			t.Errorf("%s: the server would wait for the rest of the body", c.contentType)
		}
	}
}

// No answer has field errors without bound, whoever made them.
func TestFieldErrorsAreBounded(t *testing.T) {
	var errs []error
	for range 1000 {
		errs = append(errs, &model.FieldError{Field: "health[0].vip", Reason: "is required"})
	}
	fields := model.FieldErrors(errors.Unwrap(ToConnect(errors.Join(errs...))))
	if n := len(fields); n != model.MaxFieldErrors+1 || fields[n-1].More != 1000-model.MaxFieldErrors {
		t.Errorf("%d field errors, the last %v", n, fields[max(n, 1)-1])
	}
}
