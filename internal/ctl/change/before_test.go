package change

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/ctl/manifestfile"
)

// Who reads why VIPs were refused is told that tenants and fabrics, which have calls of their own, were applied before.
func TestARefusalSaysWhatWasAppliedBefore(t *testing.T) {
	for _, c := range []struct {
		err  error
		done []string
		want string
	}{
		{&manifestfile.ProblemError{}, nil, "nothing was changed"},
		{&manifestfile.ProblemError{}, []string{"tenants"}, "only tenants were applied"},
		{fmt.Errorf("apply: %w", &manifestfile.ProblemError{Applied: 7}), []string{"tenants", "fabrics"}, "only tenants and fabrics and the first 7 VIPs were applied"},
		{errors.New("no manager answers"), []string{"tenants", "fabrics"}, "no manager answers: tenants and fabrics are applied: apply again to go on"},
		{errors.New("no manager answers"), nil, "no manager answers"},
	} {
		if got := afterOthers(c.err, c.done).Error(); !strings.Contains(got, c.want) || len(c.done) == 0 && strings.Contains(got, "again") {
			t.Errorf("told %q, want %q", got, c.want)
		}
	}
}
