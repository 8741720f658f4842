package overlay

import (
	"fmt"
	"maps"
	"slices"
)

// numbers gives numbers, from 1 on, to what sessions name by them.
type numbers[K comparable] struct {
	what    string // for people
	most    uint32
	compare func(a, b K) int

	of          map[K]uint32
	quarantined map[uint32]K // numbers that nothing has any more, but sessions may
}

func newNumbers[K comparable](what string, most uint32, compare func(a, b K) int) *numbers[K] {
	return &numbers[K]{what: what, most: most, compare: compare, of: map[K]uint32{}, quarantined: map[uint32]K{}}
}

// set makes the keys exactly those that have numbers, and returns which are new. What is taken up again while its number
// is in quarantine has it again. Nothing changes if there are not enough.
func (n *numbers[K]) set(keys map[K]bool) (added []K, err error) {
	of, quarantined, used := map[K]uint32{}, maps.Clone(n.quarantined), map[uint32]bool{}
	for key, number := range n.of {
		if keys[key] {
			of[key] = number
		} else {
			quarantined[number] = key
		}
	}
	for number, key := range quarantined {
		if _, has := of[key]; keys[key] && !has {
			of[key] = number
			delete(quarantined, number)
		}
		used[number] = true
	}
	for _, number := range of {
		used[number] = true
	}
	next := uint32(1)
	for _, key := range slices.SortedFunc(maps.Keys(keys), n.compare) {
		if of[key] != 0 {
			continue
		}
		for used[next] {
			next++
		}
		if next > n.most {
			return nil, fmt.Errorf("number %s: there are more than %d, with those that sessions still have", n.what, n.most)
		}
		of[key], used[next] = next, true
		added = append(added, key)
	}
	n.of, n.quarantined = of, quarantined
	return added, nil
}

// adopt notes a number that an earlier process has given.
func (n *numbers[K]) adopt(key K, number uint32) { n.of[key] = number }

// quarantine keeps a number that a session has from others, if it is nobody's.
func (n *numbers[K]) quarantine(number uint32) {
	if number == 0 || slices.Contains(slices.Collect(maps.Values(n.of)), number) {
		return
	}
	if _, there := n.quarantined[number]; !there {
		var nobody K
		n.quarantined[number] = nobody
	}
}

// free ends the quarantine of numbers that no session has.
func (n *numbers[K]) free(has map[uint32]bool) {
	maps.DeleteFunc(n.quarantined, func(number uint32, _ K) bool { return !has[number] })
}
