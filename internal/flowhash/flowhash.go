// Package flowhash is the keyed hash of a five-tuple, and of the virtual network that it is in, by which every mux of a
// pool chooses the same bucket: the twin of bpf/net/flowhash.h, used to explain and to test what a mux does.
//
// It is NH, the universal hash of UMAC (RFC 4418, section 5.2.2), with the finaliser of
// MurmurHash3 behind it. Pure: no I/O, no clock, no state.
package flowhash

import (
	"encoding/binary"
	"fmt"

	"github.com/weirlb/weir/internal/model"
)

// KeySize is the length of a Key in bytes.
const KeySize = 40

// Key is the pool's secret: ten 32-bit words, little-endian as the data plane loads them.
type Key [KeySize]byte

// NewKey makes a Key of exactly KeySize bytes.
func NewKey(secret []byte) (Key, error) {
	if len(secret) != KeySize {
		return Key{}, fmt.Errorf("flow hash key has %d bytes, not %d", len(secret), KeySize)
	}
	return Key(secret), nil
}

// Sum hashes the flow. A table of n buckets, n a power of two, uses Sum & (n-1).
func (k Key) Sum(f model.Flow) uint32 { return uint32(k.Sum64(f)) }

// Sum64 is all of the hash, which tells flows apart.
func (k Key) Sum64(f model.Flow) uint64 {
	source, destination := f.Source.Addr().As16(), f.Destination.Addr().As16()
	var ports [4]byte
	binary.BigEndian.PutUint16(ports[0:], f.Source.Port())
	binary.BigEndian.PutUint16(ports[2:], f.Destination.Port())

	var words [10]uint32
	for i := range 4 {
		words[i] = binary.LittleEndian.Uint32(source[4*i:])
		words[4+i] = binary.LittleEndian.Uint32(destination[4*i:])
	}
	words[8] = binary.LittleEndian.Uint32(ports[:])
	words[9] = uint32(f.Protocol) | f.VNI<<8

	var h uint64
	for i := 0; i < len(words); i += 2 {
		a := words[i] + binary.LittleEndian.Uint32(k[4*i:])
		b := words[i+1] + binary.LittleEndian.Uint32(k[4*i+4:])
		h += uint64(a) * uint64(b)
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return h
}
