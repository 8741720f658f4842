package query

import (
	"errors"
	"testing"

	"github.com/weirlb/weir/internal/model"
)

func TestFilters(t *testing.T) {
	f, err := NewFilter("red", "tier=web", "shop-")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, tenant string
		labels       map[string]string
		want         bool
	}{
		{"shop-1", "red", map[string]string{"tier": "web"}, true},
		{"shop-1", "blue", map[string]string{"tier": "web"}, false},
		{"shop-1", "red", map[string]string{"tier": "db"}, false},
		{"shop-1", "red", nil, false},
		{"mail-1", "red", map[string]string{"tier": "web"}, false},
	} {
		if got := f.InRange(c.name) && f.Fits(c.tenant, c.labels); got != c.want {
			t.Errorf("%s of %s with %v: %v", c.name, c.tenant, c.labels, got)
		}
	}
	if from := f.From(""); from != "shop-" {
		t.Errorf("the list begins at %q", from)
	}
	if from := f.From("shop-7"); from != "shop-7" {
		t.Errorf("the next page begins at %q", from)
	}
	if all, err := NewFilter("", "", ""); err != nil || !all.InRange("x") || !all.Fits("any", nil) {
		t.Errorf("an empty filter does not take all: %v", err)
	}
	var refused *model.FieldError
	if _, err := NewFilter("", "tier in (", ""); !errors.As(err, &refused) || refused.Field != "labelSelector" {
		t.Errorf("a broken selector: %v", err)
	}
}
