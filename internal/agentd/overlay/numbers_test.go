package overlay

import (
	"cmp"
	"maps"
	"testing"

	"pgregory.net/rapid"
)

// A number is another key's only once no session has it; a key that comes back before that has its own again.
func TestNumbersRestWhileSessionsHaveThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 6
		n := newNumbers("letters", most, cmp.Compare[string])
		sessions := map[uint32]string{} // whose a number is to those who use it
		for range 40 {
			keys := map[string]bool{}
			for _, key := range []string{"a", "b", "c", "d"} {
				if rapid.Bool().Draw(t, key) {
					keys[key] = true
				}
			}
			was := maps.Clone(n.of)
			if _, err := n.set(keys); err != nil {
				if !maps.Equal(was, n.of) {
					t.Fatal("a refusal has changed numbers")
				}
				if len(n.quarantined)+len(n.of)+len(keys) <= most {
					t.Fatalf("%v, though there is room", err)
				}
			}
			of := map[uint32]string{}
			for key, number := range n.of {
				if number == 0 || number > most || of[number] != "" {
					t.Fatalf("%s has number %d, as %q has", key, number, of[number])
				}
				of[number] = key
				if whose := sessions[number]; whose != "" && whose != key {
					t.Fatalf("number %d is %s's, and sessions have it of %s", number, key, whose)
				}
				if rapid.Bool().Draw(t, "session of "+key) {
					sessions[number] = key
				}
			}
			for number := range sessions {
				if rapid.Bool().Draw(t, "over") {
					delete(sessions, number)
				}
			}
			has := map[uint32]bool{}
			for number := range sessions {
				has[number] = true
			}
			n.free(has)
		}
	})
}
