package query

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/weirlb/weir/internal/model"
)

// Bounds of a page.
const (
	MaxPage = 1000 // results
	// maxBytes are those of all results, unless one alone has more. What an answer says beside them has room in the 4 MiB
	// that clients of gRPC take if they are not told otherwise.
	maxBytes = 3 << 20
	perValue = 6 // bytes of a result's tag and length
)

// Request asks for a page of a list (AIP-158).
type Request interface {
	proto.Message
	GetPageSize() uint32
	GetPageToken() string
}

// Page is where a page of a list begins, and how large it is. A list goes on behind a key, so it is
// stable: what was there all the time is listed once, whatever comes and goes meanwhile.
type Page struct {
	After string
	Size  int

	of token
}

// token is what a page's token says: where the next page begins, and what was asked for. It opens nothing: what the caller
// may see is asked on each page.
type token struct {
	After string            `json:"after"`
	List  string            `json:"list,omitempty"`  // name of the request's message; releases that did not check it left it out
	Asked map[string]string `json:"asked,omitempty"` // hash of each field that was set, by its name
}

// The fields of a request that may differ from one page to the next.
const (
	sizeField  = protoreflect.Name("page_size")
	tokenField = protoreflect.Name("page_token")
)

// NewPage is the page that a request asks for: of at most MaxPage results, and as many if it does not say. One that goes on
// where another ended must ask for the same.
func NewPage(r Request) (Page, error) {
	p := Page{Size: int(min(cmp.Or(r.GetPageSize(), MaxPage), MaxPage)), of: asked(r)}
	if r.GetPageToken() == "" {
		return p, nil
	}
	var before token
	text, err := base64.RawURLEncoding.DecodeString(r.GetPageToken())
	if err == nil {
		err = json.Unmarshal(text, &before)
	}
	if err != nil || before.After == "" {
		return p, &model.FieldError{Field: "pageToken", Reason: fmt.Sprintf("must be the nextPageToken of the page before, is %.80q", r.GetPageToken())}
	}
	p.After = before.After
	return p, p.of.continues(before, r.ProtoReflect().Descriptor().Fields())
}

// asked is the token of a request, without a place.
func asked(r Request) token {
	of := token{List: string(r.ProtoReflect().Descriptor().Name()), Asked: map[string]string{}}
	r.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if field.Name() != sizeField && field.Name() != tokenField {
			alone := r.ProtoReflect().New()
			alone.Set(field, value)
			text, _ := proto.MarshalOptions{Deterministic: true}.Marshal(alone.Interface()) // it came by the wire
			sum := sha256.Sum256(text)
			of.Asked[field.JSONName()] = base64.RawURLEncoding.EncodeToString(sum[:8])
		}
		return true
	})
	return of
}

// continues says by name which field is otherwise than on the page before.
func (t token) continues(before token, fields protoreflect.FieldDescriptors) error {
	const again = "leave pageToken out for the first page"
	if before.List != "" && before.List != t.List {
		return &model.FieldError{Field: "pageToken", Reason: fmt.Sprintf("is of a %.64q, and this is a %s: %s", before.List, t.List, again)}
	}
	for i := range fields.Len() {
		if name := fields.Get(i).JSONName(); before.List != "" && t.Asked[name] != before.Asked[name] {
			return &model.FieldError{Field: name, Reason: "must be as it was on the page that pageToken is of: " + again}
		}
	}
	return nil
}

// next is the token of the page behind a key.
func (t token) next(after string) string {
	t.After = after
	text, err := json.Marshal(t)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// TimeKey is a key of results that are in order of a time, and of a name where that is the same.
func TimeKey(at time.Time, name string) string {
	return fmt.Sprintf("%020d %s", at.UnixNano(), name)
}

// Results are those of one page.
type Results[T proto.Message] struct {
	All  []T
	Next string // token of the next page; empty: there is none

	page  Page
	last  string // key
	bytes int
}

// Collect begins a page.
func Collect[T proto.Message](p Page) *Results[T] { return &Results[T]{page: p} }

// Add adds the result that write writes. Results come in order of their keys, which no two of them share; those of pages before
// are passed over. It returns false once the page is full.
func (r *Results[T]) Add(key string, write func() T) bool {
	if r.page.After != "" && key <= r.page.After {
		return true
	}
	if len(r.All) < r.page.Size {
		result := write()
		if size := proto.Size(result) + perValue; len(r.All) == 0 || r.bytes+size <= maxBytes {
			r.All, r.last, r.bytes = append(r.All, result), key, r.bytes+size
			return true
		}
	}
	r.Next = r.page.of.next(r.last)
	return false
}
