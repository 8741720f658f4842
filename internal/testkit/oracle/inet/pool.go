package inet

import (
	"hash/fnv"
	"net/netip"

	"github.com/weirlb/weir/internal/model"
)

// Pool are the muxes that hold the same tables.
type Pool []model.PoolMember

// Owner is the member whose name, hashed with the lower half of a datagram's hash, is the highest; self, if there is
// none.
func (p Pool) Owner(self string, hash uint64) model.PoolMember {
	best, most := model.PoolMember{Name: self}, uint64(0)
	for _, member := range p {
		seed := fnv.New64a()
		seed.Write([]byte(member.Name))
		score := Finish(hash&0xffffffff ^ seed.Sum64())
		if score >= most {
			best, most = member, score
		}
	}
	return best
}

// Address is the first one of the member in the family.
func (p Pool) Address(name string, v4 bool) netip.Addr {
	for _, member := range p {
		for _, a := range member.Addresses {
			if member.Name == name && a.Is4() == v4 {
				return a
			}
		}
	}
	return netip.Addr{}
}

// IsMember says whether an address is of one of them.
func (p Pool) IsMember(a netip.Addr) bool {
	for _, member := range p {
		if p.Address(member.Name, a.Is4()) == a {
			return true
		}
	}
	return false
}
