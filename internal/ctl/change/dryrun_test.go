package change

import (
	"strings"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
)

func TestADryRunNamesSwitches(t *testing.T) {
	var out strings.Builder
	err := printDryRun(&out, []*weirv1.AppliedVIP{
		{Name: "fast", Change: "updated", Move: &weirv1.PlacementMove{From: []string{"sw1"}, To: []string{"sw2", "sw3"}}},
		{Name: "slow", Change: "updated", Move: &weirv1.PlacementMove{From: []string{"sw1"}}},
		{Name: "shop", Change: "unchanged"},
	})
	want := `vip fast would be updated
  would be served by switches sw2, sw3 instead of switches sw1
vip slow would be updated
  would be served by muxes instead of switches sw1
vip shop would stay as it is
`
	if err != nil || out.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out.String(), want)
	}
}
