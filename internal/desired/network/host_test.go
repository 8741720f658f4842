package network

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model/vnet"
)

// allocate has the numbers follow the hosts.
func allocate(s *Numbers, hosts []string, mayGive bool, now time.Time) (without []string) {
	change, without := s.Allocate(slices.Values(hosts), mayGive, now)
	for host, n := range change {
		if n == (Number{}) {
			s.Remove(host)
		} else {
			s.Put(host, n)
		}
	}
	return without
}

// A number is one host's, stays while the host has to do with networks, and is nobody else's for the quarantine after it.
func TestNumbersAreStableAndFreedLate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Numbers
		now := time.Unix(1_700_000_000, 0)
		type use struct {
			host string
			last time.Time
		}
		used := map[uint32]use{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(40*time.Hour)).Draw(t, "passes")))
			var hosts []string
			for i := range 6 {
				if rapid.Bool().Draw(t, "is there") {
					hosts = append(hosts, fmt.Sprintf("h%d", i))
				}
			}
			before := s.clone()
			mayGive := rapid.Bool().Draw(t, "may give")
			without := allocate(&s, hosts, mayGive, now)
			for _, host := range hosts {
				n := s.Of(host)
				if n == 0 {
					if mayGive || !slices.Contains(without, host) {
						t.Fatalf("%s has no number, without are %v", host, without)
					}
					continue
				}
				if was := before.Of(host); was != 0 && was != n || s.HostOf(n) != host {
					t.Fatalf("%s had number %d and has %d, which is that of %s", host, was, n, s.HostOf(n))
				}
				if other := used[n]; other.host != host && now.Sub(other.last) < NumberQuarantine-time.Second {
					t.Fatalf("%s has the number that %s had %s ago", host, other.host, now.Sub(other.last))
				}
				used[n] = use{host, now}
			}
			for host, n := range s.All() {
				if n.IsReleased() == slices.Contains(hosts, host) {
					t.Fatalf("%s has %+v, and hosts are %v", host, n, hosts)
				}
				if slices.Contains(hosts, host) || !n.IsReleased() {
					continue
				}
				if u := used[n.Number]; u.host == host { // it is used until it is released
					used[n.Number] = use{host, n.Released}
				}
			}
		}
	})
}

func TestNumbersRunOut(t *testing.T) {
	var s Numbers
	var hosts []string
	for i := range vnet.MaxHosts + 2 {
		hosts = append(hosts, fmt.Sprintf("h%05d", i))
	}
	now := time.Unix(1_700_000_000, 0)
	if without := allocate(&s, hosts, true, now); !slices.Equal(without, hosts[vnet.MaxHosts:]) {
		t.Fatalf("%d are without", len(without))
	}
	freed := s.Of(hosts[0])
	for host, n := range s.All() {
		if n.Number < 1 || n.Number > vnet.MaxHosts || s.HostOf(n.Number) != host {
			t.Fatalf("%s has %d, which is that of %s", host, n.Number, s.HostOf(n.Number))
		}
	}
	if without := allocate(&s, hosts[1:], true, now); len(without) != 2 {
		t.Errorf("%d are without, while one is in quarantine", len(without))
	}
	if without := allocate(&s, hosts[1:], true, now.Add(NumberQuarantine+time.Minute)); len(without) != 2 {
		t.Errorf("%d are without when the quarantine ends: the number is free in the next round", len(without))
	}
	if without := allocate(&s, hosts[1:], true, now.Add(NumberQuarantine+time.Minute)); len(without) != 1 || s.Of(hosts[vnet.MaxHosts]) != freed {
		t.Errorf("%d are without, and the one that waited has %d", len(without), s.Of(hosts[vnet.MaxHosts]))
	}
}

// Hosts that were added after a backup get the numbers again that they had, in whatever order they come.
func TestNumbersFollowFromNames(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var backup Numbers
	allocate(&backup, []string{"a1", "a2"}, true, now)
	after := backup.clone()
	for _, host := range []string{"c7", "b3", "b2", "b9"} {
		allocate(&after, []string{"a1", "a2", host}, true, now) // the others are released, and keep theirs
	}
	restored := backup.clone()
	allocate(&restored, []string{"a1", "a2", "b2", "b3", "b9", "c7"}, true, now)
	for host, n := range restored.All() {
		if was := after.Of(host); n.Number != was {
			t.Errorf("%s had %d before the restore and has %d", host, was, n.Number)
		}
	}
}
