package selector

import "testing"

func TestMatches(t *testing.T) {
	labels := map[string]string{"app": "shop", "zone": "a", "empty": ""}
	for text, want := range map[string]bool{
		"":                                true,
		"app=shop":                        true,
		"app == shop":                     true,
		"app=blog":                        false,
		"app!=blog":                       true,
		"app!=shop":                       false,
		"other!=x":                        true,
		"app":                             true,
		"other":                           false,
		"!other":                          true,
		"! app":                           false,
		"zone in (b, a)":                  true,
		"zone in (b)":                     false,
		"zone notin (b,c)":                true,
		"other notin (b)":                 true,
		"empty=":                          true,
		"app=":                            false,
		"app=shop,zone in (a,b), !other ": true,
		"app=shop,zone in (b,c)":          false,
	} {
		s, err := Parse(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if got := s.Matches(labels); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{",", "app=shop,", "=x", "!", "app in", "app in (a", "app on (a)", "in (a)", "a b", "a=b=c", "app=a b", "a,,b", "a=!b"} {
		if s, err := Parse(text); err == nil {
			t.Errorf("%q is %+v", text, s)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("app=shop,tier!=test,zone in (a,b),x notin (c),canary,!old", "app", "shop")
	f.Fuzz(func(t *testing.T, text, label, value string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		s.Matches(map[string]string{label: value})
		again, err := Parse(" " + text + " ")
		if err != nil || again.Matches(map[string]string{label: value}) != s.Matches(map[string]string{label: value}) {
			t.Errorf("%q is not the same with spaces around it: %v", text, err)
		}
	})
}
