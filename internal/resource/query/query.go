// Package query reads what a call that lists or watches asks for: a tenant, labels, names, a page.
package query

import (
	"strings"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/selector"
)

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
