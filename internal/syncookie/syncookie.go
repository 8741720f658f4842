// Package syncookie is SYN cookies as muxes make them and hosts check them: the twin of
// bpf/net/syncookie.h, used to test what both do. bpf/abi/shared/syncookie.h tells what a cookie holds.
//
// Pure: no I/O, no clock, no state.
package syncookie

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"github.com/dchest/siphash"

	"github.com/weirlb/weir/internal/model"
)

// Flow is a connection that is to be.
type Flow struct {
	Client, VIP netip.AddrPort
	ISN         uint32 // of the client's SYN
	VNI         uint32 // of the virtual network that both are in; 0: none
}

// Offer is what the client offered in its SYN, as far as a cookie keeps it.
type Offer struct {
	MSS        uint16 // that Make rounds down to a class
	Timestamps bool   // without, there is no Scale, and no SACK
	Scale      int    // window scale, at most 14; negative: none
	SACK       bool
}

// NoScale is the Scale of a client that offered none.
const NoScale = -1

// What a SYN-ACK with a cookie announces.
const (
	WindowScale = 9
	Window      = 16384
)

// Tick is how long cookies of one tick are made; they are valid until the end of the next one.
const Tick = 1 << 36 * time.Nanosecond

// Why a cookie is refused.
var (
	ErrForged = errors.New("forged")
	ErrOld    = errors.New("old")
)

// Where the parts of a cookie stand.
const (
	tickShift   = 3
	secretShift = 5
	macShift    = 7
)

// classes are the MSS that a cookie can name.
var classes = [...]uint16{536, 1220, 1300, 1360, 1400, 1440, 1460, 8940}

// Class is the largest MSS that a cookie can name and that is not above mss, or the smallest one.
func Class(mss uint16) (number uint32, rounded uint16) {
	for i, class := range classes {
		if class <= mss {
			number = uint32(i)
		}
	}
	return number, classes[number]
}

// Make returns the cookie: the sequence number of the SYN-ACK.
func Make(secret model.SYNSecret, f Flow, o Offer, now time.Time) uint32 {
	class, _ := Class(o.MSS)
	tick := tickOf(now)
	return mac(secret, f, tick, class, o)<<macShift | (secret.ID&3)<<secretShift | (tick&3)<<tickShift | class
}

// Check returns the client's MSS, rounded down, if one of secrets made the cookie for the flow and what
// the client offered beside it, in this tick or the one before; or in the next one, by a clock ahead.
func Check(secrets []model.SYNSecret, f Flow, cookie uint32, o Offer, now time.Time) (uint16, error) {
	for _, secret := range secrets {
		if secret.ID&3 != cookie>>secretShift&3 {
			continue
		}
		for _, tick := range []uint32{tickOf(now) - 1, tickOf(now), tickOf(now) + 1} {
			if tick&3 != cookie>>tickShift&3 {
				continue
			}
			if mac(secret, f, tick, cookie&7, o)<<macShift != cookie>>macShift<<macShift {
				return 0, ErrForged
			}
			return classes[cookie&7], nil
		}
	}
	return 0, ErrOld
}

// TSval is that of the SYN-ACK, to a client with timestamps.
func TSval(o Offer, slot model.Slot, now time.Time) uint32 {
	return uint32(now.UnixNano()>>28)<<18 | o.bits()&31<<13 | uint32(slot)
}

// OfferOf is what TSval kept of an Offer, all but the MSS.
func OfferOf(tsecr uint32) Offer {
	o := Offer{Timestamps: true, Scale: int(tsecr >> 13 & 15), SACK: tsecr>>17&1 != 0}
	if o.Scale == 15 {
		o.Scale = NoScale
	}
	return o
}

// bits are those of enum syn_option.
func (o Offer) bits() uint32 {
	if !o.Timestamps {
		return 0
	}
	bits := uint32(1 << 5)
	if o.SACK {
		bits |= 1 << 4
	}
	if o.Scale < 0 {
		return bits | 15
	}
	return bits | uint32(o.Scale)
}

func tickOf(now time.Time) uint32 { return uint32(now.UnixNano() >> 36) }

// mac is SipHash-2-4 of connection, tick, class and offer.
func mac(secret model.SYNSecret, f Flow, tick, class uint32, o Offer) uint32 {
	var b []byte
	b = append(b, f.Client.Addr().AsSlice()...)
	b = append(b, f.VIP.Addr().AsSlice()...)
	if f.VNI != 0 {
		b = binary.LittleEndian.AppendUint64(b, uint64(f.VNI))
	}
	b = binary.BigEndian.AppendUint16(b, f.Client.Port())
	b = binary.BigEndian.AppendUint16(b, f.VIP.Port())
	b = binary.BigEndian.AppendUint32(b, f.ISN)
	b = binary.LittleEndian.AppendUint32(b, tick)
	b = binary.LittleEndian.AppendUint16(b, uint16(class|o.bits()<<3))
	k0, k1 := binary.LittleEndian.Uint64(secret.Secret[:8]), binary.LittleEndian.Uint64(secret.Secret[8:])
	return uint32(siphash.Hash(k0, k1, b))
}
