package mergepatch

import (
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	weirv1 "github.com/weirlb/weir/api/v1"
)

const patched = `{"name": "shop", "labels": {"team": "web", "stage": "live"}, "address": "203.0.113.10", "endpoints": [
	{"protocol": "TCP", "port": 80, "idleTimeout": "30s", "backends": [{"address": "10.3.1.11", "port": 80, "host": "host1"}]}]}`

func patch(t *testing.T, text string) (*weirv1.VIP, error) {
	t.Helper()
	var vip weirv1.VIP
	var p structpb.Struct
	if err := protojson.Unmarshal([]byte(patched), &vip); err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	err := Apply(&vip, &p)
	return &vip, err
}

func TestMergePatch(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                          patched,
		`{"address": "203.0.113.11"}`: `{"name": "shop", "labels": {"team": "web", "stage": "live"}, "address": "203.0.113.11", "endpoints": [{"protocol": "TCP", "port": 80, "idleTimeout": "30s", "backends": [{"address": "10.3.1.11", "port": 80, "host": "host1"}]}]}`,
		`{"labels": {"stage": null, "x": "y"}, "endpoints": [{"port": 443}]}`: `{"name": "shop", "labels": {"team": "web", "x": "y"}, "address": "203.0.113.10", "endpoints": [{"port": 443}]}`,
		`{"labels": null, "endpoints": null, "flowLimit": 5}`:                 `{"name": "shop", "address": "203.0.113.10", "flowLimit": 5}`,
	} {
		var expected weirv1.VIP
		if err := protojson.Unmarshal([]byte(want), &expected); err != nil {
			t.Fatal(err)
		}
		if got, err := patch(t, text); err != nil || !proto.Equal(got, &expected) {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
}

func TestMergePatchRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{"adress": "203.0.113.11"}`:                  "adress: unknown field, did you mean address?",
		`{"endpoints": [{"backends": [{"prt": 1}]}]}`: "endpoints[0].backends[0].prt: unknown field, did you mean port?",
		`{"flow_limit": 3}`:                           "flow_limit: unknown field, did you mean flowLimit?",
	} {
		if _, err := patch(t, text); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{`{"address": 5}`, `{"endpoints": {"port": 1}}`, `{"flowLimit": -1}`, `{"labels": {"a": 1}}`} {
		if got, err := patch(t, text); err == nil {
			t.Errorf("%s makes %v", text, got)
		}
	}
}

func FuzzMergePatch(f *testing.F) {
	f.Add([]byte(`{"labels": {"stage": null}, "endpoints": [{"port": 443}]}`))
	f.Add([]byte(`{"endpoints": {"port": [1, {"a": null}]}, "flowLimit": 1e300}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var p structpb.Struct
		var vip weirv1.VIP
		if protojson.Unmarshal(text, &p) != nil || protojson.Unmarshal([]byte(patched), &vip) != nil {
			return
		}
		if Apply(&vip, &p) != nil {
			return
		}
		once := proto.Clone(&vip)
		if err := Apply(&vip, &p); err != nil || !proto.Equal(once, &vip) {
			t.Errorf("%s: a second time it is %v, %v, not %v", text, &vip, err, once)
		}
	})
}
