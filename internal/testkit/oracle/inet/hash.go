package inet

import (
	"encoding/binary"

	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
)

// KeyedHash is the hash of a flow: NH of UMAC (RFC 4418, section 5.2.2) over the words of its
// addresses, ports, protocol and VNI, finished as MurmurHash3 does it. All words are little-endian.
func KeyedHash(key flowhash.Key, f model.Flow) uint64 {
	source, destination := f.Source.Addr().As16(), f.Destination.Addr().As16()
	data := append(source[:], destination[:]...)
	data = binary.BigEndian.AppendUint16(data, f.Source.Port())
	data = binary.BigEndian.AppendUint16(data, f.Destination.Port())
	data = append(data, byte(f.Protocol), byte(f.VNI), byte(f.VNI>>8), byte(f.VNI>>16))

	h := uint64(0)
	for at := 0; at < len(data); at += 8 {
		a := binary.LittleEndian.Uint32(data[at:]) + binary.LittleEndian.Uint32(key[at:])
		b := binary.LittleEndian.Uint32(data[at+4:]) + binary.LittleEndian.Uint32(key[at+4:])
		h += uint64(a) * uint64(b)
	}
	return Finish(h)
}

// Finish is how MurmurHash3 ends.
func Finish(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
