package store

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/keyspace"
	"github.com/weirlb/weir/internal/store/truststore"
	"github.com/weirlb/weir/internal/trust"
)

// many fills a store with VIPs, a prefix list of several chunks, and tokens.
func many(t *testing.T, s *Store) {
	t.Helper()
	c := Change{PrefixLists: []model.PrefixList{listOf("blocked", 0, 20_000)}}
	for i := range 100 {
		address := netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})
		c.VIPs = append(c.VIPs, vip(fmt.Sprintf("vip%d", i), address.String()))
	}
	defer mustStage(t, s, c.PrefixLists[0])()
	mustUpdate(t, s, c)
	var tokens []trust.JoinToken
	for i := range 50 {
		tokens = append(tokens, trust.JoinToken{ID: fmt.Sprintf("t%d", i)})
	}
	if err := s.Trust.Update(t.Context(), func(*truststore.Trust) (truststore.Change, error) { return truststore.Change{Tokens: tokens}, nil }); err != nil {
		t.Fatal(err)
	}
}

// A store that is read in small pages is the same as one that is read in large ones.
func TestPagesAreTheWholeStore(t *testing.T) {
	dir := t.TempDir()
	s, end := open(t, etcd.Config{DataDir: dir})
	many(t, s)
	want, trusted, listed := dump(s.State()), trustOf(s).Tokens.Len(), s.State().PrefixLists.At("blocked").Prefixes.Len()
	end()
	for _, keys := range []int64{1, 7, etcd.DefaultPageKeys} {
		s, end = open(t, etcd.Config{DataDir: dir, PageKeys: keys})
		if got := dump(s.State()); !reflect.DeepEqual(got, want) {
			t.Errorf("read by %d keys at a time as %v, want %v", keys, got, want)
		}
		if got := trustOf(s).Tokens.Len(); got != trusted || s.State().PrefixLists.At("blocked").Prefixes.Len() != listed {
			t.Errorf("by %d keys at a time there are %d tokens, want %d, %d prefixes, want %d", keys, got, trusted,
				s.State().PrefixLists.At("blocked").Prefixes.Len(), listed)
		}
		end()
	}
}

func trustOf(s *Store) *truststore.Trust {
	now, _ := s.Trust.Watch()
	return now
}

// Pages are of one revision, however the store changes meanwhile, and begin anew when that is compacted.
func TestPagesAreOfOneRevision(t *testing.T) {
	s, _ := open(t, etcd.Config{DataDir: t.TempDir(), PageKeys: 7})
	many(t, s)
	for _, compacts := range []bool{false, true} {
		var keys []string
		begun, largest := 0, 0
		first := true
		revision, err := s.etcd.Pages(t.Context(), keyspace.VIPs, func() { begun++; keys = nil }, func(page []*mvccpb.KeyValue) error {
			largest = max(largest, len(page))
			for _, kv := range page {
				keys = append(keys, strings.TrimPrefix(string(kv.Key), keyspace.VIPs))
			}
			if first {
				first = false
				gone := fmt.Sprintf("vip9%d", begun)
				generation := mustUpdate(t, s, Change{DeleteVIPs: []string{gone}, VIPs: []model.VIP{vip("vipz", "198.51.100.1")}})
				if compacts {
					if _, err := s.etcd.Compact(t.Context(), int64(generation)); err != nil {
						t.Fatal(err)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		wantBegun, state := 1, slices.Collect(s.State().VIPs.Keys())
		if compacts {
			wantBegun = 2
		}
		if begun != wantBegun || largest != 7 {
			t.Errorf("reading began %d times, want %d, and the largest page has %d keys", begun, wantBegun, largest)
		}
		if same := slices.Equal(keys, state) && revision == s.State().revision; same != compacts {
			t.Errorf("%d keys of revision %d were read, there are %d now, of revision %d", len(keys), revision, len(state), s.State().revision)
		}
		if !compacts && (!slices.Contains(keys, "vip91") || slices.Contains(keys, "vipz")) {
			t.Errorf("the keys are not of one revision: %v", keys)
		}
	}
}

func TestQuotaIsBounded(t *testing.T) {
	for _, bytes := range []int64{-1, etcd.MinQuota - 1, etcd.MaxQuota + 1} {
		_, err := openOnly(t, etcd.Config{DataDir: t.TempDir(), Quota: bytes})
		if err == nil || !strings.Contains(err.Error(), "--quota-backend-bytes: must be 268435456 to 68719476736") {
			t.Errorf("a quota of %d: %v", bytes, err)
		}
	}
	s, _ := open(t, etcd.Config{DataDir: t.TempDir(), Quota: etcd.MinQuota})
	if size, err := s.etcd.Size(t.Context()); err != nil || size.Quota != etcd.MinQuota {
		t.Errorf("the quota is %d, %v", size.Quota, err)
	}
}
