package sorted_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/sorted"
)

// A Map is what a Go map is, in order; a copy does not see what is written to the other.
func TestMapIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type pair struct {
			m    sorted.Map[string, int]
			want map[string]int
		}
		all := []pair{{want: map[string]int{}}}
		for step := range rapid.IntRange(1, 200).Draw(t, "steps") {
			last := &all[len(all)-1]
			key := fmt.Sprint(rapid.IntRange(0, 99).Draw(t, "key"))
			switch rapid.IntRange(0, 9).Draw(t, "do") {
			case 0:
				all = append(all, pair{last.m.Clone(), maps.Clone(last.want)})
			case 1, 2, 3:
				last.m.Delete(key)
				delete(last.want, key)
			default:
				last.m.Set(key, step)
				last.want[key] = step
			}
		}
		for _, p := range all {
			if got := maps.Collect(p.m.All()); !maps.Equal(got, p.want) || p.m.Len() != len(p.want) {
				t.Fatalf("got %v, want %v", got, p.want)
			}
			keys := slices.Sorted(maps.Keys(p.want))
			if got := slices.Collect(p.m.Keys()); !slices.Equal(got, keys) {
				t.Fatalf("got the keys %v, want %v", got, keys)
			}
			for key, want := range p.want {
				if got, ok := p.m.Get(key); !ok || got != want || !p.m.Has(key) || p.m.At(key) != want {
					t.Fatalf("got %d at %q, want %d", got, key, want)
				}
			}
			if len(keys) > 0 {
				middle := keys[len(keys)/2]
				for first := range p.m.From(middle) {
					if first != middle {
						t.Fatalf("from %q on, the first is %q", middle, first)
					}
					break
				}
			}
		}
	})
}

// Copies may be made and read at once.
func TestCopiesAreIndependent(t *testing.T) {
	m := sorted.Of(map[netip.Addr]int{netip.MustParseAddr("10.0.0.1"): 1, netip.MustParseAddr("10.0.0.2"): 2})
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			own := m.Clone()
			own.Set(netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}), i)
			if own.Len() != 3 || m.Len() != 2 {
				t.Errorf("the copy has %d entries and the map %d, want 3 and 2", own.Len(), m.Len())
			}
		})
	}
	group.Wait()
}

// growth shows that a write to a copy does not get dearer with the number of entries.
func BenchmarkWriteToACopy(b *testing.B) {
	for _, n := range []int{1000, 20000, 100000} {
		var m sorted.Map[string, int]
		for i := range n {
			m.Set(fmt.Sprintf("vip-%06d", i), i)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for i := range b.N {
				m = m.Clone()
				m.Set(fmt.Sprintf("vip-%06d", i%n), i)
			}
		})
	}
}

// Two orders of one type of keys would be a matter of which package initializes first.
func TestKeysHaveOneOrder(t *testing.T) {
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "keys of string are registered twice") {
			t.Errorf("got %q", got)
		}
	}()
	sorted.Register(strings.Compare)
}

// A type of keys that nobody registered is told at the first write.
func TestKeysHaveAnOrder(t *testing.T) {
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "sorted_test.unordered have no order") {
			t.Errorf("got %q", got)
		}
	}()
	type unordered struct{}
	var m sorted.Map[unordered, int]
	m.Set(unordered{}, 1)
}
