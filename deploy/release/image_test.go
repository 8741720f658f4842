package main

import (
	"regexp"
	"testing"
)

// The grammar of tags is that of the OCI distribution specification.
func TestReferencesAreValid(t *testing.T) {
	tag := regexp.MustCompile(`^weir-mux:[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)
	for _, version := range []string{"1.2.3", "1.2.3+5.gabcdef0", "0.0.1369+g8f2d2732"} {
		if got := reference("weir-mux", version); !tag.MatchString(got) {
			t.Errorf("%s is no reference", got)
		}
	}
}
