package snat

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
)

func drawRanges(t *rapid.T, label string) []model.Range {
	ranges := rapid.SliceOfNDistinct(rapid.Map(rapid.IntRange(0, 40), func(n int) model.Range { return model.Range(n) }), 0, 30, rapid.ID).Draw(t, label)
	slices.Sort(ranges)
	return ranges
}

// Whatever differs, a delta makes of the list before the list that is, and is shorter than it.
func TestDeltaMakesTheList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := List{Written: model.Generation(rapid.IntRange(0, 3).Draw(t, "before")), Ranges: drawRanges(t, "had")}
		is := List{Written: model.Generation(rapid.IntRange(0, 3).Draw(t, "written")), Ranges: drawRanges(t, "has")}
		d, short := is.Since(before)
		if !short {
			return
		}
		got, err := before.Apply(d)
		if err != nil || got.Written != is.Written || !slices.Equal(got.Ranges, is.Ranges) {
			t.Fatalf("%+v makes %+v, not %+v: %v", d, got, is, err)
		}
		if len(d.Added)+len(d.Removed) >= len(is.Ranges) {
			t.Fatalf("%+v is no shorter than %+v", d, is)
		}
	})
}

// A delta that can't be what differs from the list is refused, with the field that is wrong; any other makes the list
// with what is added and without what is removed.
func TestDeltaOfAnotherListIsRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := List{Written: model.Generation(rapid.IntRange(0, 3).Draw(t, "has")), Ranges: drawRanges(t, "ranges")}
		d := Delta{
			After: model.Generation(rapid.IntRange(0, 3).Draw(t, "after")), Written: model.Generation(rapid.IntRange(0, 4).Draw(t, "written")),
			Added: drawRanges(t, "added"), Removed: drawRanges(t, "removed"),
		}
		want := map[model.Range]bool{}
		for _, r := range l.Ranges {
			want[r] = true
		}
		wrong := map[string]bool{}
		for _, r := range d.Added {
			wrong["added"] = wrong["added"] || want[r]
		}
		for _, r := range d.Removed {
			wrong["removed"] = wrong["removed"] || !want[r]
		}
		if d.After != l.Written || l.Written == 0 || d.Written < d.After || d.Written == d.After && len(d.Added)+len(d.Removed) > 0 {
			wrong = map[string]bool{"after": true}
		}
		got, err := l.Apply(d)
		if wrong["after"] || wrong["added"] || wrong["removed"] {
			field := "none"
			if err != nil {
				field, _, _ = strings.Cut(err.Error(), ":")
			}
			if !wrong[field] {
				t.Fatalf("refused %s of %+v to %+v: %v", field, d, l, err)
			}
			return
		}
		for _, r := range d.Added {
			want[r] = true
		}
		for _, r := range d.Removed {
			delete(want, r)
		}
		for _, r := range got.Ranges {
			if !want[r] {
				t.Fatalf("has %d: %+v of %+v", r, d, l)
			}
		}
		if err != nil || len(got.Ranges) != len(want) || !slices.IsSorted(got.Ranges) {
			t.Fatalf("%+v makes %+v of %+v: %v", d, got, l, err)
		}
	})
}
