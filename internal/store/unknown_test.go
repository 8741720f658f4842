package store

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/keyspace"
)

// raw is what lies under a key.
func raw(t *testing.T, s *Store, key string) string {
	t.Helper()
	response, err := s.etcd.Get(t.Context(), key)
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
	response, err := s.etcd.Put(t.Context(), key, text)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is read", func() bool {
		now, _ := s.Trust.Watch()
		return max(s.State().revision, now.Revision()) >= response.Header.Revision
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
	s, end := open(t, etcd.Config{DataDir: dir})
	shop := vip("shop", "203.0.113.1")
	mustUpdate(t, s, Change{VIPs: []model.VIP{shop}, Nodes: []model.Node{host}})
	putTenant(t, s, 1)
	ofVIP := func(m *weirv1.VIP) []proto.Message {
		endpoint := m.Endpoints[len(m.Endpoints)-1]
		return []proto.Message{m, m.Limits, endpoint, endpoint.Backends[0]}
	}
	ofTenant := func(m *weirv1.Tenant) []proto.Message { return []proto.Message{m.Quotas} }
	putLater(t, s, keyspace.VIPs+"shop", &weirv1.VIP{}, ofVIP)
	putRaw(t, s, keyspace.Nodes+"host1", `"value":{`, `"value":{"later":1.50,`)
	putLater(t, s, keyspace.Tenants+"acme", &weirv1.Tenant{}, ofTenant)
	end()
	s, _ = open(t, etcd.Config{DataDir: dir})
	if got := s.State().VIPs.At("shop"); !reflect.DeepEqual(got, shop) {
		t.Errorf("read as %+v, want %+v", got, shop)
	}
	eventually(t, "it leads", func() bool { epoch, _ := s.Election.Epoch(); return epoch != 0 })
	shop.Labels, shop.Limits = map[string]string{"tier": "db"}, &model.Limits{Packets: 9}
	first := shop.Endpoints[0]
	shop.Endpoints = []model.Endpoint{first, first}
	shop.Endpoints[0].Port = 54 // another one, before the one that there was
	for range 2 {
		mustUpdate(t, s, Change{VIPs: []model.VIP{shop}, Nodes: []model.Node{host}})
		var m weirv1.VIP
		rawMessage(t, s, keyspace.VIPs+"shop", &m)
		kept(t, "a VIP", ofVIP(&m))
		if m.Labels["tier"] != "db" || m.Limits.Packets != 9 || len(m.Endpoints[0].ProtoReflect().GetUnknown()) > 0 {
			t.Errorf("the VIP is %v", &m)
		}
		if text := raw(t, s, keyspace.Nodes+"host1"); strings.Count(text, `"later":1.50`) != 1 {
			t.Errorf("what a newer manager wrote into a node is not kept: %s", text)
		}
		shop.Labels = map[string]string{"tier": "db", "b": "c"}
	}
	if got := s.State().VIPs.At("shop"); !reflect.DeepEqual(got, shop) {
		t.Errorf("written as %+v, want %+v", got, shop)
	}
	putTenant(t, s, 2)
	var tenant weirv1.Tenant
	rawMessage(t, s, keyspace.Tenants+"acme", &tenant)
	kept(t, "a tenant", ofTenant(&tenant))
	if tenant.GetQuotas().GetVips() != 2 {
		t.Errorf("the tenant is %v", &tenant)
	}

	mustUpdate(t, s, Change{DeleteVIPs: []string{"shop"}})
	mustUpdate(t, s, Change{VIPs: []model.VIP{shop}})
	var again weirv1.VIP
	rawMessage(t, s, keyspace.VIPs+"shop", &again)
	if codec.HasUnknown(again.ProtoReflect()) {
		t.Errorf("of a VIP that was deleted there is left %v", &again)
	}
}
