package model

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"sort"
)

// PrefixSet is a set of prefixes of both families, in order: IPv4 first, then by address and length. It lies in chunks
// that never change, which sets that differ little share. A set never changes either; the zero value is empty.
type PrefixSet struct {
	chunks []*PrefixChunk
	size   int
}

// PrefixChunk is a part of a PrefixSet: prefixes of one family, in order.
type PrefixChunk struct {
	id     string
	packed string // the family, 4 or 6, then each prefix: its address and its length
}

// Bounds of the prefixes of a chunk. A change writes the chunks anew that it touches: they are small. A million
// prefixes are a few hundred of them: they are not too small.
const (
	chunkMost = 4096
	chunkFill = 2048 // of each part of one that became too large
	chunkIDs  = 16   // bytes of a digest
)

// NewPrefixSet is the set of prefixes, which are masked, in any order.
func NewPrefixSet(prefixes []netip.Prefix) PrefixSet { return PrefixSet{}.Change(prefixes, nil) }

// ParsePrefixChunk reads what PrefixChunk.Packed gave. It holds that the prefixes are masked and in order.
func ParsePrefixChunk(packed []byte) (*PrefixChunk, error) {
	c := &PrefixChunk{packed: string(packed)}
	if len(packed) == 0 || packed[0] != 4 && packed[0] != 6 {
		return nil, errors.New("the chunk of prefixes is of no family")
	}
	if n := len(packed) - 1; n == 0 || n%c.width() != 0 {
		return nil, fmt.Errorf("the chunk of prefixes has %d bytes, which are no whole prefixes", n)
	}
	for i := range c.Len() {
		if p := c.at(i); !p.IsValid() || p != p.Masked() {
			return nil, fmt.Errorf("prefix %d of the chunk is none", i)
		}
		if i > 0 && c.entry(i-1) >= c.entry(i) {
			return nil, fmt.Errorf("prefix %d of the chunk is not in order", i)
		}
	}
	c.id = chunkID(c.packed)
	return c, nil
}

// chunkID tells chunks apart by what is in them.
func chunkID(packed string) string {
	digest := sha256.Sum256([]byte(packed))
	return hex.EncodeToString(digest[:chunkIDs])
}

// ID tells it from others.
func (c *PrefixChunk) ID() string { return c.id }

// Packed is the chunk as ParsePrefixChunk reads it.
func (c *PrefixChunk) Packed() []byte { return []byte(c.packed) }

// Len is how many prefixes it has.
func (c *PrefixChunk) Len() int { return (len(c.packed) - 1) / c.width() }

// Size is how many bytes it takes.
func (c *PrefixChunk) Size() int { return len(c.packed) }

func (c *PrefixChunk) family() byte { return c.packed[0] }

func (c *PrefixChunk) width() int { return width(c.packed[0]) }

// width is how many bytes a prefix of the family takes.
func width(family byte) int {
	if family == 4 {
		return 4 + 1
	}
	return 16 + 1
}

// entry is prefix i as it is packed: entries of one family are in order as text is.
func (c *PrefixChunk) entry(i int) string {
	w := c.width()
	return c.packed[1+i*w : 1+(i+1)*w]
}

func (c *PrefixChunk) at(i int) netip.Prefix { return unpack(c.entry(i)) }

func unpack(entry string) netip.Prefix {
	n := len(entry) - 1
	address, _ := netip.AddrFromSlice([]byte(entry[:n])) // of 4 or 16 bytes
	return netip.PrefixFrom(address, int(entry[n]))
}

func pack(p netip.Prefix) (family byte, entry string) {
	family = 6
	if p.Addr().Is4() {
		family = 4
	}
	return family, string(append(p.Addr().AsSlice(), byte(p.Bits())))
}

// PrefixSetOf is the set that has these chunks, in order.
func PrefixSetOf(chunks []*PrefixChunk) (PrefixSet, error) {
	s := PrefixSet{chunks: chunks}
	for i, c := range chunks {
		if i > 0 {
			before := chunks[i-1]
			if before.family() > c.family() || before.family() == c.family() && before.entry(before.Len()-1) >= c.entry(0) {
				return PrefixSet{}, fmt.Errorf("chunk %d of the prefixes is not in order", i)
			}
		}
		s.size += c.Len()
	}
	return s, nil
}

// Chunks are those that the set has, in order. They are not written to.
func (s PrefixSet) Chunks() []*PrefixChunk { return s.chunks }

// Len is how many prefixes the set has.
func (s PrefixSet) Len() int { return s.size }

// Count is how many prefixes the set has of a family.
func (s PrefixSet) Count(family Family) int {
	n := 0
	for _, c := range s.chunks {
		if (c.family() == 4) == (family == IPv4) {
			n += c.Len()
		}
	}
	return n
}

// Equal says whether both have the same prefixes, in the same chunks.
func (s PrefixSet) Equal(other PrefixSet) bool {
	return slices.EqualFunc(s.chunks, other.chunks, func(a, b *PrefixChunk) bool { return a.id == b.id })
}

// All are the prefixes, in order.
func (s PrefixSet) All() iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for _, c := range s.chunks {
			for i := range c.Len() {
				if !yield(c.at(i)) {
					return
				}
			}
		}
	}
}

// Minus are the prefixes that other does not have, in order. It costs no more than the chunks in which they differ.
func (s PrefixSet) Minus(other PrefixSet) []netip.Prefix {
	own, others := apart(s, other), apart(other, s)
	var rest []netip.Prefix
	next := entries(others)
	family, entry, more := next()
	for _, c := range own {
		for i := range c.Len() {
			e := c.entry(i)
			for more && (family < c.family() || family == c.family() && entry < e) {
				family, entry, more = next()
			}
			if !more || family != c.family() || entry != e {
				rest = append(rest, unpack(e))
			}
		}
	}
	return rest
}

// Beyond is how many prefixes s has in chunks that other does not have: at least as many as Minus has.
func (s PrefixSet) Beyond(other PrefixSet) int {
	n := 0
	for _, c := range apart(s, other) {
		n += c.Len()
	}
	return n
}

// apart are the chunks of s that other does not have.
func apart(s, other PrefixSet) []*PrefixChunk {
	theirs := make(map[string]bool, len(other.chunks))
	for _, c := range other.chunks {
		theirs[c.id] = true
	}
	var own []*PrefixChunk
	for _, c := range s.chunks {
		if !theirs[c.id] {
			own = append(own, c)
		}
	}
	return own
}

// entries returns one entry of chunks after the other.
func entries(chunks []*PrefixChunk) func() (family byte, entry string, more bool) {
	i := 0
	return func() (byte, string, bool) {
		for len(chunks) > 0 && i == chunks[0].Len() {
			chunks, i = chunks[1:], 0
		}
		if len(chunks) == 0 {
			return 0, "", false
		}
		i++
		return chunks[0].family(), chunks[0].entry(i - 1), true
	}
}

// Replace is the set of what is in whole, in the chunks of s as far as they are the same.
func (s PrefixSet) Replace(whole PrefixSet) PrefixSet {
	if s.size == 0 {
		return whole
	}
	return s.Change(whole.Minus(s), s.Minus(whole))
}

// Change is the set without the prefixes of remove, and with those of add, which are masked. It costs no more than the chunks that it touches.
func (s PrefixSet) Change(add, remove []netip.Prefix) PrefixSet {
	var b setBuilder
	for _, family := range []byte{4, 6} {
		added, removed := packAll(add, family), packAll(remove, family)
		var chunks []*PrefixChunk
		for _, c := range s.chunks {
			if c.family() == family {
				chunks = append(chunks, c)
			}
		}
		if len(chunks) == 0 && len(added) > 0 {
			chunks = []*PrefixChunk{{packed: string(family)}}
		}
		for i, c := range chunks {
			a, r := len(added), len(removed)
			if i+1 < len(chunks) {
				bound := chunks[i+1].entry(0)
				a, r = sort.SearchStrings(added, bound), sort.SearchStrings(removed, bound)
			}
			if a+r == 0 {
				b.keep(c)
			} else {
				b.put(family, merge(c, added[:a], removed[:r]))
			}
			added, removed = added[a:], removed[r:]
		}
	}
	set, _ := PrefixSetOf(b.chunks) // in order, as they were made
	return set
}

// packAll are the prefixes of a family as entries in order, each once.
func packAll(prefixes []netip.Prefix, family byte) []string {
	var list []string
	for _, p := range prefixes {
		if f, entry := pack(p); f == family {
			list = append(list, entry)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// merge are the entries of c without those of removed, and with those of added.
func merge(c *PrefixChunk, added, removed []string) []byte {
	merged := make([]byte, 0, len(c.packed)+len(added)*c.width())
	for i := range c.Len() {
		e := c.entry(i)
		for len(added) > 0 && added[0] < e {
			merged, added = append(merged, added[0]...), added[1:]
		}
		for len(removed) > 0 && removed[0] < e {
			removed = removed[1:]
		}
		gone := len(removed) > 0 && removed[0] == e
		if len(added) > 0 && added[0] == e {
			gone, added = false, added[1:]
		}
		if !gone {
			merged = append(merged, e...)
		}
	}
	for _, e := range added {
		merged = append(merged, e...)
	}
	return merged
}

// setBuilder puts chunks behind each other.
type setBuilder struct{ chunks []*PrefixChunk }

func (b *setBuilder) keep(c *PrefixChunk) { b.chunks = append(b.chunks, c) }

// put adds entries of a family: to the chunk before them if both are small, and as several chunks if they are many.
func (b *setBuilder) put(family byte, entries []byte) {
	w := width(family)
	if n := len(b.chunks); n > 0 && b.chunks[n-1].family() == family && b.chunks[n-1].Len()+len(entries)/w <= chunkFill {
		entries = append([]byte(b.chunks[n-1].packed[1:]), entries...)
		b.chunks = b.chunks[:n-1]
	}
	if len(entries)/w > chunkMost {
		for part := range slices.Chunk(entries, chunkFill*w) {
			b.add(family, part)
		}
		return
	}
	if len(entries) > 0 {
		b.add(family, entries)
	}
}

func (b *setBuilder) add(family byte, entries []byte) {
	packed := string(family) + string(entries)
	b.chunks = append(b.chunks, &PrefixChunk{id: chunkID(packed), packed: packed})
}

// Has says whether the prefix itself is in the set.
func (s PrefixSet) Has(p netip.Prefix) bool {
	family, entry := pack(p)
	c, i := s.search(family, entry)
	return c < len(s.chunks) && s.chunks[c].family() == family && s.chunks[c].entry(i) == entry
}

// search finds the first prefix that is not before the entry: prefix i of chunk c.
func (s PrefixSet) search(family byte, entry string) (c, i int) {
	c = sort.Search(len(s.chunks), func(c int) bool {
		chunk := s.chunks[c]
		return chunk.family() > family || chunk.family() == family && chunk.entry(chunk.Len()-1) >= entry
	})
	if c < len(s.chunks) && s.chunks[c].family() == family {
		i = sort.Search(s.chunks[c].Len(), func(i int) bool { return s.chunks[c].entry(i) >= entry })
	}
	return c, i
}

// Covering is the longest prefix of the set that has all addresses of p.
func (s PrefixSet) Covering(p netip.Prefix) (netip.Prefix, bool) {
	for bits := p.Bits(); bits >= 0; bits-- {
		if around := netip.PrefixFrom(p.Addr(), bits).Masked(); s.Has(around) {
			return around, true
		}
	}
	return netip.Prefix{}, false
}

// Contains says whether a prefix of the set has the address.
func (s PrefixSet) Contains(a netip.Addr) bool {
	_, found := s.Covering(netip.PrefixFrom(a, a.BitLen()))
	return found
}

// Within are the prefixes of the set that lie in p, in order.
func (s PrefixSet) Within(p netip.Prefix) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		family, entry := pack(p)
		c, i := s.search(family, entry)
		for ; c < len(s.chunks) && s.chunks[c].family() == family; c, i = c+1, 0 {
			for ; i < s.chunks[c].Len(); i++ {
				inner := s.chunks[c].at(i)
				if !p.Contains(inner.Addr()) || !yield(inner) {
					return
				}
			}
		}
	}
}
