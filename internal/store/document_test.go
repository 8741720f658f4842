package store

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
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
	putText(t, s, key, text)
}

func putText(t *testing.T, s *Store, key, text string) {
	t.Helper()
	response, err := s.client.Put(t.Context(), key, text)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is read", func() bool {
		now, _ := s.Trust()
		return max(s.State().revision, now.revision) >= response.Header.Revision
	})
}

// later is a field that no message has.
var later = protowire.AppendVarint(protowire.AppendTag(nil, 9999, protowire.VarintType), 7)

// putLater has a newer manager set a field in some messages of what lies under key.
func putLater[M proto.Message](t *testing.T, s *Store, key string, m M, within func(M) []proto.Message) {
	t.Helper()
	rawMessage(t, s, key, m)
	for _, inner := range within(m) {
		inner.ProtoReflect().SetUnknown(later)
	}
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	putText(t, s, key, raw(t, s, key)[:1]+string(data))
}

// kept holds that the messages have what putLater set.
func kept(t *testing.T, where string, all []proto.Message) {
	t.Helper()
	for i, m := range all {
		if !bytes.Equal(m.ProtoReflect().GetUnknown(), later) {
			t.Errorf("what a newer manager wrote into %s, message %d, is not kept: %v", where, i, m)
		}
	}
}

// rawMessage reads what lies under a key into m.
func rawMessage(t *testing.T, s *Store, key string, m proto.Message) {
	t.Helper()
	if err := proto.Unmarshal([]byte(raw(t, s, key)[1:]), m); err != nil {
		t.Fatal(err)
	}
}

// What a newer manager wrote into a document is there after an older one has written the document, wherever in it; what
// was deleted takes it along.
func TestUnknownMembersAreKept(t *testing.T) {
	dir := t.TempDir()
	s, end := open(t, Config{DataDir: dir})
	shop := vip("shop", "203.0.113.1")
	mustUpdate(t, s, Change{VIPs: []model.VIP{shop}, Nodes: []model.Node{host}})
	putTenant(t, s, 1)
	ofVIP := func(m *weirv1.VIP) []proto.Message {
		endpoint := m.Endpoints[len(m.Endpoints)-1]
		return []proto.Message{m, m.Limits, endpoint, endpoint.Backends[0]}
	}
	ofTenant := func(m *weirv1.Tenant) []proto.Message { return []proto.Message{m.Quotas} }
	putLater(t, s, prefixVIPs+"shop", &weirv1.VIP{}, ofVIP)
	putRaw(t, s, prefixNodes+"host1", `"value":{`, `"value":{"later":1.50,`)
	putLater(t, s, prefixTenants+"acme", &weirv1.Tenant{}, ofTenant)
	end()
	s, _ = open(t, Config{DataDir: dir})
	if got := s.State().VIPs.At("shop"); !reflect.DeepEqual(got, shop) {
		t.Errorf("read as %+v, want %+v", got, shop)
	}
	eventually(t, "it leads", func() bool { epoch, _ := s.Epoch(); return epoch != 0 })
	shop.Labels, shop.Limits = map[string]string{"tier": "db"}, &model.Limits{Packets: 9}
	first := shop.Endpoints[0]
	shop.Endpoints = []model.Endpoint{first, first}
	shop.Endpoints[0].Port = 54 // another one, before the one that there was
	for range 2 {
		mustUpdate(t, s, Change{VIPs: []model.VIP{shop}, Nodes: []model.Node{host}})
		var m weirv1.VIP
		rawMessage(t, s, prefixVIPs+"shop", &m)
		kept(t, "a VIP", ofVIP(&m))
		if m.Labels["tier"] != "db" || m.Limits.Packets != 9 || len(m.Endpoints[0].ProtoReflect().GetUnknown()) > 0 {
			t.Errorf("the VIP is %v", &m)
		}
		if text := raw(t, s, prefixNodes+"host1"); strings.Count(text, `"later":1.50`) != 1 {
			t.Errorf("what a newer manager wrote into a node is not kept: %s", text)
		}
		shop.Labels = map[string]string{"tier": "db", "b": "c"}
	}
	if got := s.State().VIPs.At("shop"); !reflect.DeepEqual(got, shop) {
		t.Errorf("written as %+v, want %+v", got, shop)
	}
	putTenant(t, s, 2)
	var tenant weirv1.Tenant
	rawMessage(t, s, prefixTenants+"acme", &tenant)
	kept(t, "a tenant", ofTenant(&tenant))
	if tenant.GetQuotas().GetVips() != 2 {
		t.Errorf("the tenant is %v", &tenant)
	}

	mustUpdate(t, s, Change{DeleteVIPs: []string{"shop"}})
	mustUpdate(t, s, Change{VIPs: []model.VIP{shop}})
	var again weirv1.VIP
	rawMessage(t, s, prefixVIPs+"shop", &again)
	if hasUnknown(again.ProtoReflect()) {
		t.Errorf("of a VIP that was deleted there is left %v", &again)
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
	text, err := encodeOver([]byte(was), trust.Principal{Kind: trust.User, Name: "bob", Issue: 4})
	if err != nil {
		t.Fatal(err)
	}
	got, unknown, err := decodeKnown[trust.Principal](prefixPrincipals+"user/bob", []byte(text))
	if err != nil || !unknown || !reflect.DeepEqual(got, trust.Principal{Kind: trust.User, Name: "bob", Issue: 4}) || !strings.Contains(text, `"later":[{"a":1}]`) {
		t.Errorf("%s is read as %+v, %v", text, got, err)
	}
}
