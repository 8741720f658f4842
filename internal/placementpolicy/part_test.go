package placementpolicy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestShare(t *testing.T) {
	for _, c := range []struct {
		what, places string // "a hardware 1/2" and so on
		silent       string
		full         bool // switches have room for what they hold and no more
		want         string
	}{
		{what: "all begin at once", places: "a preparing,b preparing,c preparing", full: true, want: "a 1/3,b 2/3,c 3/3"},
		{what: "one is not connected yet", places: "a preparing,b preparing", want: "a 1/2,b 2/2"},
		{what: "and there is no room", places: "a preparing,b preparing", full: true, want: "a 1/3,b 2/3"},
		{what: "it comes", places: "a hardware 1/2,b hardware 2/2,c preparing", full: true, want: "a 1/3,b 2/3,c 3/3"},
		{what: "one is refused", places: "a hardware 1/3,b evicted 2/3,c hardware 3/3", want: "a 1/2,b 2/3,c 2/2"},
		{what: "and there is no room for its part", places: "a hardware 1/3,b evicted 2/3,c hardware 3/3", full: true, want: "a 1/3,b 2/3,c 3/3"},
		{what: "the others have its part already", places: "a hardware 1/2,b evicted 2/3,c hardware 2/2", full: true, want: "a 1/2,b 2/3,c 2/2"},
		{what: "one is silent", places: "a hardware 1/3,b hardware 2/3,c hardware 3/3", silent: "b", want: "a 1/2,b 2/3,c 2/2"},
		{what: "and there is no room for its part", places: "a hardware 1/3,b hardware 2/3,c hardware 3/3", silent: "b", full: true, want: "a 1/3,b 2/3,c 3/3"},
		{what: "one alone", places: "a hardware 1/3,b leaving 2/3,c withdrawing 3/3", want: "a ,b 2/3,c 3/3"},
		{what: "all are silent", places: "a hardware 1/2,c hardware 2/2", silent: "abc", want: "a 1/2,c 2/2"},
		{what: "one that is not named", places: "a hardware 1/3,b hardware,c hardware,d withdrawing 3/4", full: true, want: "a 1/3,b 2/3,c 3/3,d 3/4"},
		{what: "nothing has begun", want: ""},
	} {
		s := State{Places: map[string]Place{}}
		for place := range strings.SplitSeq(c.places, ",") {
			var name string
			var p Place
			if n, _ := fmt.Sscanf(place, "%s %s %d/%d", &name, &p.Phase, &p.Part.Number, &p.Part.Of); n > 0 {
				s.Places[name] = p
			}
		}
		s.Share([]string{"c", "a", "b"}, func(name string) bool { return strings.Contains(c.silent, name) }, func(string, Part) bool { return !c.full })
		var got []string
		for _, name := range slices.Sorted(maps.Keys(s.Places)) {
			got = append(got, name+" "+s.Places[name].Part.String())
		}
		if strings.Join(got, ",") != c.want {
			t.Errorf("%s: %s, want %s", c.what, strings.Join(got, ","), c.want)
		}
		if c.places != "" {
			s.Whole([]string{"a"})
			if s.Places["a"].Part != (Part{}) {
				t.Errorf("%s: whole, a has %v", c.what, s.Places["a"].Part)
			}
		}
	}
}
