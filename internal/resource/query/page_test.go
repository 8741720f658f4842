package query

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// read reads all pages of a list of the names that there are at each page.
func read(t *testing.T, size uint32, names func() []string) (listed []string, pages int) {
	t.Helper()
	for token := ""; ; {
		page, err := NewPage(&weirv1.ListNodesRequest{PageSize: size, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		found := Collect[*weirv1.Node](page)
		for _, name := range names() {
			if !found.Add(name, func() *weirv1.Node { return &weirv1.Node{Name: name} }) {
				break
			}
		}
		if pages++; len(found.All) > int(size) || pages > 100 {
			t.Fatalf("page %d, of %d, has %d", pages, size, len(found.All))
		}
		for _, n := range found.All {
			listed = append(listed, n.GetName())
		}
		if token = found.Next; token == "" {
			return listed, pages
		}
	}
}

// Joined, the pages are the list, whatever their size, and no page is empty but that of an empty list.
func TestPagesJoinedAreTheList(t *testing.T) {
	names := []string{"a", "a0", "b", "c", "d", "e", "f"}
	for size := uint32(1); size < 9; size++ {
		listed, pages := read(t, size, func() []string { return names })
		if !slices.Equal(listed, names) || pages != (len(names)+int(size)-1)/int(size) {
			t.Errorf("by %d: %v in %d pages", size, listed, pages)
		}
	}
	if listed, pages := read(t, 3, func() []string { return nil }); len(listed) > 0 || pages != 1 {
		t.Errorf("of an empty list: %v in %d pages", listed, pages)
	}
}

// Whatever is listed by pages is listed once and in order, though others come and go between two pages.
func TestPagesGoOnBehindAName(t *testing.T) {
	names, calls := []string{"a", "b", "c", "d", "e"}, 0
	listed, _ := read(t, 2, func() []string {
		if calls++; calls == 2 {
			names = []string{"a", "aa", "c", "d", "e"} // b, which ended the first page, is no more, and aa is before it
		}
		return names
	})
	if want := []string{"a", "b", "c", "d", "e"}; !slices.Equal(listed, want) {
		t.Errorf("listed %v, not %v", listed, want)
	}
}

func TestPagesAreBounded(t *testing.T) {
	for size, want := range map[uint32]int{0: MaxPage, 1: 1, MaxPage: MaxPage, MaxPage + 1: MaxPage, 1<<32 - 1: MaxPage} {
		if page, err := NewPage(&weirv1.ListVIPsRequest{PageSize: size}); err != nil || page.Size != want {
			t.Errorf("a page of %d has %d, %v; not %d", size, page.Size, err, want)
		}
	}
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	ask := func(token string) (Page, error) {
		return NewPage(&weirv1.ListVIPsRequest{PageSize: 10, PageToken: token})
	}
	if page, err := ask(encode(`{"after":"a","size":1000000,"Size":1000000}`)); err != nil || page.Size != 10 || page.After != "a" {
		t.Errorf("a token of a release before made a page of %d behind %q: %v", page.Size, page.After, err)
	}
	for _, token := range []string{"%", "bm90IGpzb24", encode(`{"after":7}`), encode("{}"), encode("null"), strings.Repeat("A", 1<<16)} {
		_, err := ask(token)
		var refused *model.FieldError
		if !errors.As(err, &refused) || refused.Field != "pageToken" || len(refused.Reason) > 512 {
			t.Errorf("token %.20q: %.600v", token, err)
		}
	}
}

// A page has no more bytes than it may, whatever its results have; one that has more alone is a page alone.
func TestPagesAreBoundedInBytes(t *testing.T) {
	sizes := []int{1, maxBytes / 3, maxBytes / 3, maxBytes / 3, 1, 2 * maxBytes, 1, maxBytes}
	var pages [][]int
	for token := ""; ; {
		page, err := NewPage(&weirv1.ListNodesRequest{PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		found := Collect[*weirv1.Node](page)
		for i, size := range sizes {
			if !found.Add(string(rune('a'+i)), func() *weirv1.Node { return &weirv1.Node{Version: strings.Repeat("x", size)} }) {
				break
			}
		}
		if bytes := proto.Size(&weirv1.ListNodesResponse{Nodes: found.All}); bytes > maxBytes && len(found.All) > 1 {
			t.Errorf("%d results have %d bytes", len(found.All), bytes)
		}
		var of []int
		for _, n := range found.All {
			of = append(of, len(n.GetVersion()))
		}
		if pages = append(pages, of); found.Next == "" || len(pages) > 100 {
			break
		}
		token = found.Next
	}
	if len(pages) != 5 || !slices.Equal(slices.Concat(pages...), sizes) {
		t.Errorf("pages of %v bytes", pages)
	}
}

// A page that asks for something else than the one before is refused with the name of what differs.
func TestPagesAskForTheSame(t *testing.T) {
	first := func() *weirv1.ListVIPsRequest {
		return &weirv1.ListVIPsRequest{Tenant: "red", LabelSelector: "a=b", Addresses: []string{"192.0.2.1", "192.0.2.2"}, PageSize: 1}
	}
	page, err := NewPage(first())
	if err != nil {
		t.Fatal(err)
	}
	found := Collect[*weirv1.VIP](page)
	for _, name := range []string{"a", "b"} {
		found.Add(name, func() *weirv1.VIP { return &weirv1.VIP{Name: name} })
	}
	for field, change := range map[string]func(*weirv1.ListVIPsRequest){
		"":              func(r *weirv1.ListVIPsRequest) { r.PageSize = 7 },
		"tenant":        func(r *weirv1.ListVIPsRequest) { r.Tenant = "blue" },
		"labelSelector": func(r *weirv1.ListVIPsRequest) { r.LabelSelector = "" },
		"namePrefix":    func(r *weirv1.ListVIPsRequest) { r.NamePrefix = "x" },
		"addresses":     func(r *weirv1.ListVIPsRequest) { r.Addresses = r.Addresses[:1] },
		"withWarnings":  func(r *weirv1.ListVIPsRequest) { r.WithWarnings = true },
	} {
		next := first()
		next.PageToken = found.Next
		change(next)
		_, err := NewPage(next)
		var refused *model.FieldError
		if field == "" && err != nil || field != "" && (!errors.As(err, &refused) || refused.Field != field) {
			t.Errorf("other %s: %v", field, err)
		}
	}
	_, err = NewPage(&weirv1.ListNodesRequest{PageToken: found.Next})
	var refused *model.FieldError
	if !errors.As(err, &refused) || refused.Field != "pageToken" || !strings.Contains(refused.Reason, `of a "ListVIPsRequest", and this is a ListNodesRequest`) {
		t.Errorf("another list: %v", err)
	}
}
