package query

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/model"
)

// Whatever is listed by pages is listed once and in order, though resources come and go between two pages.
func TestPagesGoOnBehindAName(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	var listed []string
	for token := ""; ; {
		page, err := NewPage(2, token)
		if err != nil {
			t.Fatal(err)
		}
		at, _ := slices.BinarySearchFunc(names, page.After+"\x00", strings.Compare)
		next := names[at:min(at+page.Size, len(names))]
		if len(next) == 0 {
			break
		}
		listed = append(listed, next...)
		token = page.Token(next[len(next)-1])
		names = slices.DeleteFunc(names, func(name string) bool { return name == "b" }) // which was listed
		if !slices.Contains(names, "aa") {
			names = slices.Insert(names, 1, "aa") // before what was listed
		}
	}
	if want := []string{"a", "b", "c", "d", "e"}; !slices.Equal(listed, want) {
		t.Errorf("listed %v, not %v", listed, want)
	}
}

func TestPagesAreBounded(t *testing.T) {
	for size, want := range map[uint32]int{0: MaxPage, 1: 1, MaxPage: MaxPage, MaxPage + 1: MaxPage, 1<<32 - 1: MaxPage} {
		if page, err := NewPage(size, ""); err != nil || page.Size != want {
			t.Errorf("a page of %d has %d, %v; not %d", size, page.Size, err, want)
		}
	}
	token := base64.RawURLEncoding.EncodeToString([]byte(`{"after":"a","size":1000000,"Size":1000000}`))
	if page, err := NewPage(10, token); err == nil && page.Size != 10 {
		t.Errorf("a token chose a page of %d", page.Size)
	}
	for _, token := range []string{"%", "bm90IGpzb24", base64.RawURLEncoding.EncodeToString([]byte(`{"after":7}`)), strings.Repeat("A", 1<<16)} {
		_, err := NewPage(10, token)
		var refused *model.FieldError
		if !errors.As(err, &refused) || refused.Field != "pageToken" || len(refused.Reason) > 512 {
			t.Errorf("token %.20q: %.600v", token, err)
		}
	}
}

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
