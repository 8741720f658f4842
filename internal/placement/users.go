package placement

import "math/bits"

// vipSet is a set of the VIPs of a region, by their index.
type vipSet [(exchangeVIPs + 63) / 64]uint64

func (s *vipSet) size() int {
	n := 0
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// nth is the n-th VIP of a set that has more than n.
func (s *vipSet) nth(n int) int {
	for i, word := range s {
		if here := bits.OnesCount64(word); n >= here {
			n -= here
			continue
		}
		for ; n > 0; n-- {
			word &= word - 1
		}
		return 64*i + bits.TrailingZeros64(word)
	}
	return -1
}

// users is which VIPs of a region use each resource.
type users struct {
	byLink, bySwitch []vipSet
	byContainer      []vipSet // there are fewer than switches
}

func newUsers(links, switches int) users {
	return users{make([]vipSet, links), make([]vipSet, switches), make([]vipSet, switches)}
}

// flip adds a VIP to the users of what it uses at an option, or takes it away.
func (u *users) flip(v int, o *option, c *candidate) {
	word, bit := v/64, uint64(1)<<(v%64)
	for _, link := range o.links {
		u.byLink[link][word] ^= bit
	}
	for _, m := range c.members {
		u.bySwitch[m][word] ^= bit
	}
	if c.container >= 0 {
		u.byContainer[c.container][word] ^= bit
	}
}
