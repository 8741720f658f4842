package publish

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// secretState is a State with all secrets, and hosts that need some of them.
func secretState() *store.State {
	s := &store.State{HashKey: flowhash.Key{1}}
	s.Generation = 7
	s.SYNSecrets = []model.SYNSecret{{ID: 1, Secret: [16]byte{1}}, {ID: 2, Secret: [16]byte{2}}}
	s.FastpathKeys = []model.FastpathKey{{ID: 1, Secret: [32]byte{1}}, {ID: 2, Secret: [32]byte{2}}}
	backend := func(host, address string) []model.Backend {
		return []model.Backend{{Host: host, Address: netip.MustParseAddr(address), Port: 80, Weight: 1}}
	}
	endpoint := func(protocol model.Protocol, mode model.SYNCookies, backends []model.Backend) []model.Endpoint {
		return []model.Endpoint{{Protocol: protocol, Port: 80, SYNCookies: mode, Backends: backends}}
	}
	leaving := netip.MustParseAddr("203.0.113.5")
	s.PutVIP(model.VIP{Name: "web", Address: netip.MustParseAddr("203.0.113.1"), Endpoints: endpoint(model.TCP, "", backend("web", "10.3.1.1"))})
	s.PutVIP(model.VIP{Name: "dns", Address: netip.MustParseAddr("203.0.113.2"), Endpoints: endpoint(model.UDP, "", backend("dns", "10.3.2.1"))})
	s.PutVIP(model.VIP{Name: "never", Address: netip.MustParseAddr("2001:db8::3"), Endpoints: endpoint(model.TCP, model.SYNCookiesNever, backend("never", "10.3.3.1"))})
	s.PutVIP(model.VIP{
		Name: "fast", Address: netip.MustParseAddr("203.0.113.4"), Endpoints: endpoint(model.TCP, model.SYNCookiesNever, backend("fast", "10.3.4.1")),
		Fastpath: &model.Fastpath{Sources: []netip.Prefix{netip.PrefixFrom(leaving, 32)}},
	})
	s.PutVIP(model.VIP{Name: "leaving", Address: leaving, SNAT: &model.SNAT{Workloads: []model.SNATWorkload{{Address: netip.MustParseAddr("10.3.5.1"), Host: "client"}}}})
	return s
}

// A host that is compromised has those secrets that its backends and workloads need, and no others.
func TestSecretsGoWhereTheyAreNeeded(t *testing.T) {
	hub := hubOf(secretState())
	for host, want := range map[string]struct{ syn, keys int }{
		"idle": {}, "web": {syn: 2}, "dns": {}, "never": {}, "fast": {keys: 2}, "client": {keys: 2},
	} {
		f := &HostFeed{hub: hub, host: host, snapshotDue: true}
		u, due := f.Next(0)
		if !due || len(u.SYNSecrets) != want.syn || len(u.Keys) != want.keys || u.HashKey != (flowhash.Key{}) {
			t.Errorf("%s is given %d secrets of SYN cookies, %d keys of Fastpath, hash key %v: want %+v, and none", host, len(u.SYNSecrets), len(u.Keys), u.HashKey != flowhash.Key{}, want)
		}
	}
}

// What a host needs later, it is given with the change that it needs it for. What it needs no more is not renewed.
func TestSecretsFollowTheNeed(t *testing.T) {
	s := secretState()
	hub := hubOf(s)
	f := &HostFeed{hub: hub, host: "idle", snapshotDue: true}
	f.Next(0)
	vip := model.VIP{
		Name: "new", Address: netip.MustParseAddr("203.0.113.9"), Fastpath: &model.Fastpath{Sources: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}},
		Endpoints: []model.Endpoint{{Protocol: model.TCP, Port: 80, Backends: []model.Backend{{Host: "idle", Address: netip.MustParseAddr("10.3.9.1"), Port: 80, Weight: 1}}}},
	}
	b := model.HostBackend{Endpoint: desired.Key(vip, vip.Endpoints[0]), Tunnel: netip.MustParseAddr("10.3.9.1")}
	next := func(change *model.HostBackend) (syn, keys []uint32, hashed bool) {
		f.pending, f.dirty = map[model.HostBackendKey]*model.HostBackend{b.Key(): change}, true
		u, _ := f.Next(0)
		for _, secret := range u.SYNSecrets {
			syn = append(syn, secret.ID)
		}
		for _, key := range u.Keys {
			keys = append(keys, key.ID)
		}
		return syn, keys, u.HashKey == s.HashKey
	}
	s.PutVIP(vip)
	if syn, keys, hashed := next(&b); len(syn) != 2 || len(keys) != 2 || hashed {
		t.Errorf("with a backend it is given %v, %v, and the hash key: %v", syn, keys, hashed)
	}
	b.Draining = []uint32{7}
	if _, _, hashed := next(&b); !hashed {
		t.Error("with a bucket that it is draining it is not given the hash key")
	}
	if _, _, hashed := next(&b); hashed {
		t.Error("it is given the hash key again")
	}
	s.SYNSecrets = append(s.SYNSecrets[1:], model.SYNSecret{ID: 3})
	s.FastpathKeys = append(s.FastpathKeys[1:], model.FastpathKey{ID: 3, Made: time.Now()})
	s.RemoveVIP(vip.Name)
	if syn, keys, _ := next(nil); len(syn) != 1 || syn[0] != 2 || len(keys) != 1 || keys[0] != 2 {
		t.Errorf("without the backend it is given %v and %v, want those that it had: 2", syn, keys)
	}
	s.SYNSecrets, s.FastpathKeys = []model.SYNSecret{{ID: 4}}, []model.FastpathKey{{ID: 4}}
	if syn, keys, _ := next(nil); len(syn)+len(keys) != 0 {
		t.Errorf("later it is given %v and %v", syn, keys)
	}
}

// A snapshot in the middle of a move has the hash key too.
func TestASnapshotWithDrainingBucketsHasTheHashKey(t *testing.T) {
	s := secretState()
	vip := s.VIPs.At("web")
	key := desired.Key(vip, vip.Endpoints[0])
	b := vip.Endpoints[0].Backends[0]
	s.Tables.Set(key, desired.Table{
		Rows:    []desired.Row{{Slot: 1, Backend: b.AddrPort(), Tunnel: b.Address}, {Slot: 2, Backend: netip.MustParseAddrPort("10.3.1.2:80")}},
		Buckets: []model.Slot{2, 2}, Moves: []desired.Move{{Bucket: 0, From: 1}},
	})
	f := &HostFeed{hub: hubOf(s), host: "web", snapshotDue: true}
	if u, _ := f.Next(0); u.HashKey != s.HashKey {
		t.Error("the host can't tell which sessions are in the bucket that moves")
	}
}
