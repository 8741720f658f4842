// Package query reads what a call that lists or watches asks for: a tenant, labels, names, a page.
package query

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/selector"
)

// MaxPage is the most results of a page.
const MaxPage = 1000

// Filter chooses resources.
type Filter struct {
	tenant string
	labels selector.Selector
	prefix string // of the name
}

// NewFilter chooses those of a tenant, by a label selector, whose names begin with prefix; what is empty chooses all.
func NewFilter(tenant, labels, prefix string) (Filter, error) {
	s, err := selector.Parse(labels)
	if err != nil {
		return Filter{}, &model.FieldError{Field: "labelSelector", Reason: err.Error()}
	}
	return Filter{tenant, s, prefix}, nil
}

// From is the first name that may fit and is not before after.
func (f Filter) From(after string) string { return max(f.prefix, after) }

// Tenant is whose resources are chosen; empty: those of all.
func (f Filter) Tenant() string { return f.tenant }

// InRange says whether names from this one on may fit, if this one is not before From.
func (f Filter) InRange(name string) bool { return strings.HasPrefix(name, f.prefix) }

// Fits says whether a resource in range, of the tenant and with the labels, was asked for.
func (f Filter) Fits(tenant string, labels map[string]string) bool {
	return (f.tenant == "" || f.tenant == tenant) && f.labels.Matches(labels)
}

// Page is where a page of a list begins, and how large it is. A list goes on behind a name, so it is
// stable: what was there all the time is listed once, whatever comes and goes meanwhile.
type Page struct {
	After string `json:"after"`
	Size  int    `json:"-"` // a token does not choose it
}

// NewPage is the page of at most size results, MaxPage if that is 0, that goes on where the one with the token ended.
func NewPage(size uint32, token string) (Page, error) {
	p := Page{Size: MaxPage}
	if size > 0 {
		p.Size = int(min(size, MaxPage))
	}
	if token == "" {
		return p, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return p, &model.FieldError{Field: "pageToken", Reason: fmt.Sprintf("must be the nextPageToken of the page before, is %.80q", token)}
	}
	return p, nil
}

// Token is what goes on after a name.
func (p Page) Token(after string) string {
	text, err := json.Marshal(Page{After: after})
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}
