package store

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/trust"
)

// raw is what lies under a key.
func raw(t *testing.T, s *Store, key string) string {
	t.Helper()
	response, err := s.client.Get(t.Context(), key)
	if err != nil || len(response.Kvs) != 1 {
		t.Fatalf("read %s: %v, %v", key, response, err)
	}
	return string(response.Kvs[0].Value)
}

// putRaw has another release of the manager write a document, in which some texts are others.
func putRaw(t *testing.T, s *Store, key string, replace ...string) {
	t.Helper()
	text := raw(t, s, key)
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(text, replace[i]) {
			t.Fatalf("%s has no %s: %s", key, replace[i], text)
		}
		text = strings.Replace(text, replace[i], replace[i+1], 1)
	}
	response, err := s.client.Put(t.Context(), key, text)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is read", func() bool {
		now, _ := s.Trust()
		return max(s.State().revision, now.revision) >= response.Header.Revision
	})
}

// What a newer manager wrote into a document is there after an older one has written the document, wherever in it; what
// was deleted takes it along.
func TestUnknownMembersAreKept(t *testing.T) {
	dir := t.TempDir()
	s, end := open(t, Config{DataDir: dir})
	shop := vip("shop", "203.0.113.1")
	mustUpdate(t, s, Change{VIPs: []model.VIP{shop}, Nodes: []model.Node{host}})
	putTenant(t, s, 1)
	putRaw(t, s, prefixVIPs+"shop", `"value":{`, `"value":{"later":{"a":[1]},`, `"limits":{`, `"limits":{"deep":3,`,
		`"endpoints":[{`, `"endpoints":[{"ofEndpoint":true,`, `"backends":[{`, `"backends":[{"ofBackend":"x",`)
	putRaw(t, s, prefixNodes+"host1", `"value":{`, `"value":{"later":1.50,`)
	putRaw(t, s, prefixTenants+"acme", `"limits":{`, `"limits":{"hosts":7,`)
	end()
	s, _ = open(t, Config{DataDir: dir})
	if got := s.State().VIPs.At("shop"); !reflect.DeepEqual(got, shop) {
		t.Errorf("read as %+v, want %+v", got, shop)
	}
	kept := func(key string, want ...string) {
		t.Helper()
		for _, member := range want {
			if text := raw(t, s, key); strings.Count(text, member) != 1 {
				t.Errorf("%s has %s %d times: %s", key, member, strings.Count(text, member), text)
			}
		}
	}

	eventually(t, "it leads", func() bool { epoch, _ := s.Epoch(); return epoch != 0 })
	shop.Labels, shop.Limits = map[string]string{"tier": "db"}, &model.Limits{Packets: 9}
	first := shop.Endpoints[0]
	shop.Endpoints = []model.Endpoint{first, first}
	shop.Endpoints[0].Port = 54 // another one, before the one that there was
	for range 2 {
		mustUpdate(t, s, Change{VIPs: []model.VIP{shop}, Nodes: []model.Node{host}})
		kept(prefixVIPs+"shop", `"later":{"a":[1]}`, `"deep":3`, `"ofEndpoint":true`, `"ofBackend":"x"`, `"tier":"db"`, `"packets":9`)
		kept(prefixNodes+"host1", `"later":1.50`)
		shop.Labels = map[string]string{"tier": "db", "b": "c"}
	}
	if got := s.State().VIPs.At("shop"); !reflect.DeepEqual(got, shop) {
		t.Errorf("written as %+v, want %+v", got, shop)
	}
	putTenant(t, s, 2)
	kept(prefixTenants+"acme", `"hosts":7`, `"vips":2`)

	mustUpdate(t, s, Change{DeleteVIPs: []string{"shop"}})
	mustUpdate(t, s, Change{VIPs: []model.VIP{shop}})
	if text := raw(t, s, prefixVIPs+"shop"); strings.Contains(text, "later") {
		t.Errorf("of a VIP that was deleted there is left %s", text)
	}
}

// A document in a form that a manager does not know is not written while that one is a manager: it would stop.
func TestFormsWaitForAllManagers(t *testing.T) {
	s, _ := open(t, Config{Name: "m1", DataDir: t.TempDir()})
	guarded := vip("guarded", "203.0.113.2")
	guarded.Endpoints[0].DenyLists = []string{"blocked"}
	eventually(t, "it tells what it knows", func() bool { return s.State().Managers["m1"].Schema == newestSchema })
	old := `{"schema":1,"value":{"name":"m2","address":"192.0.2.2:7400"}}`
	for _, who := range []string{old, strings.Replace(old, `:7400"`, `:7400","schema":1`, 1)} {
		if _, err := s.client.Put(t.Context(), prefixManagers+"m2", who); err != nil {
			t.Fatal(err)
		}
		eventually(t, "m2 is known", func() bool { return s.State().Managers["m2"].Name == "m2" })
		_, err := s.Update(t.Context(), change(Change{VIPs: []model.VIP{guarded}}))
		var unknown *UnknownFormError
		if !errors.As(err, &unknown) || *unknown != (UnknownFormError{"m2", 1, 2}) {
			t.Errorf("a form that m2 does not know: %v", err)
		}
		mustUpdate(t, s, Change{VIPs: []model.VIP{vip("open", "203.0.113.1")}})
		if _, err := s.client.Delete(t.Context(), prefixManagers+"m2"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "m2 is gone", func() bool { return len(s.State().Managers) == 1 })
	}
	mustUpdate(t, s, Change{VIPs: []model.VIP{guarded}})
}

// Documents of the same type that differ in nothing unknown are not changed by what lay there before.
func TestCarryLeavesWhatIsKnown(t *testing.T) {
	was := `{"schema":1,"value":{"kind":"user","name":"bob","issue":3,"revoked":true,"later":[{"a":1}]}}`
	text, err := encodeOver([]byte(was), trust.Member{Kind: trust.User, Name: "bob", Issue: 4})
	if err != nil {
		t.Fatal(err)
	}
	got, unknown, err := decodeKnown[trust.Member](prefixMembers+"user/bob", []byte(text))
	if err != nil || !unknown || !reflect.DeepEqual(got, trust.Member{Kind: trust.User, Name: "bob", Issue: 4}) || !strings.Contains(text, `"later":[{"a":1}]`) {
		t.Errorf("%s is read as %+v, %v", text, got, err)
	}
}
