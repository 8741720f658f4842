package codec

import (
	"reflect"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/trust"
)

// Documents of the same type that differ in nothing unknown are not changed by what lay there before.
func TestCarryLeavesWhatIsKnown(t *testing.T) {
	was := `{"schema":1,"value":{"kind":"user","name":"bob","issue":3,"revoked":true,"later":[{"a":1}]}}`
	text, err := EncodeOver([]byte(was), trust.Principal{Kind: trust.User, Name: "bob", Issue: 4})
	if err != nil {
		t.Fatal(err)
	}
	got, unknown, err := DecodeKnown[trust.Principal]("/weir/trust/v1/principals/"+"user/bob", []byte(text))
	if err != nil || !unknown || !reflect.DeepEqual(got, trust.Principal{Kind: trust.User, Name: "bob", Issue: 4}) || !strings.Contains(text, `"later":[{"a":1}]`) {
		t.Errorf("%s is read as %+v, %v", text, got, err)
	}
}
