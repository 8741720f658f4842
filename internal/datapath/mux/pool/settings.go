package pool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/mss"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
)

// Settings is what all endpoints share.
type Settings struct {
	HashKey flowhash.Key
	Source4 netip.Addr // outer source of IPv4 tunnels; invalid: those are dropped
	Source6 netip.Addr
	// Prefix4 and Prefix6 are what the outer source is taken from by flow hash, instead of one
	// address; invalid: it is Source4 or Source6.
	Prefix4, Prefix6 netip.Prefix
	Encapsulation    Encapsulation
	MTU              int // of the interface
	// MAC is the interface's Ethernet address: frames to another pass to the kernel.
	MAC [6]byte
}

// Sources are the outer sources: addresses, and prefixes.
func (s Settings) Sources() (all []string) {
	for _, source := range []netip.Addr{s.Source4, s.Source6} {
		if source.IsValid() {
			all = append(all, source.String())
		}
	}
	for _, prefix := range []netip.Prefix{s.Prefix4, s.Prefix6} {
		if prefix.IsValid() {
			all = append(all, prefix.String())
		}
	}
	return all
}

// Encapsulation is what packets are sent in. Those that must carry more than IP can go in GUE always.
type Encapsulation string

// The kinds. The empty string means IPIP.
const (
	IPIP Encapsulation = "ipip"
	GUE  Encapsulation = "gue"
)

// Table is the row of settings. The caller holds the data plane's lock, but to read.
type Table struct{ tables *bpf.Tables }

// NewTable is of these tables.
func NewTable(tables *bpf.Tables) *Table { return &Table{tables} }

// Set writes the pool's row. The program reads it field by field, so what differs between
// muxes or changes the choice of backends is to be set before the first endpoint.
func (t *Table) Set(p Settings) error {
	if p.Source4.IsValid() && !p.Source4.Is4() || p.Source6.IsValid() && !p.Source6.Is6() {
		return fmt.Errorf("set settings: sources %s and %s are not of IPv4 and IPv6", p.Source4, p.Source6)
	}
	if p.Encapsulation == "" {
		p.Encapsulation = IPIP
	}
	if p.Prefix4.IsValid() && !p.Prefix4.Addr().Is4() || p.Prefix6.IsValid() && !p.Prefix6.Addr().Is6() {
		return fmt.Errorf("set settings: source prefixes %s and %s are not of IPv4 and IPv6", p.Prefix4, p.Prefix6)
	}
	if p.Prefix6.IsValid() && p.Prefix6.Bits() < minPrefix6 {
		return fmt.Errorf("set settings: source prefix %s is shorter than /%d", p.Prefix6, minPrefix6)
	}
	if p.MTU <= 0 {
		return fmt.Errorf("set settings: mtu %d is not positive", p.MTU)
	}
	if p.MAC == [6]byte{} {
		return errors.New("set settings: no mac")
	}
	return t.write(func(row *bpf.MuxMuxSettings) {
		row.Mac = toMAC(p.MAC)
		row.HashKey = bpf.ToHashKey(p.HashKey)
		row.Mtu = uint32(p.MTU)
		room := p.MTU - int(bpf.MuxGueFormatOUTER_HEADER_MAX)
		row.Mss4, row.Mss6 = uint32(mss.For(room, false)), uint32(mss.For(room, true))
		row.Flags &= uint32(notedFlags)
		if p.Encapsulation == GUE {
			row.Flags |= uint32(bpf.MuxSettingsFlagSETTINGS_GUE)
		}
		row.Source4, row.Source6 = bpf.ToAddress(p.Source4), bpf.ToAddress(p.Source6)
		row.Spread4, row.Spread6 = bpf.MuxAddress{}, bpf.MuxAddress{}
		if p.Prefix4.IsValid() {
			row.Source4, row.Spread4 = bpf.ToSpread(p.Prefix4)
			row.Flags |= uint32(bpf.MuxSettingsFlagSETTINGS_SPREAD4)
		}
		if p.Prefix6.IsValid() {
			row.Source6, row.Spread6 = bpf.ToSpread(p.Prefix6)
			row.Flags |= uint32(bpf.MuxSettingsFlagSETTINGS_SPREAD6)
		}
	})
}

// toMAC is what a frame to the address begins with, as pool.mac has it.
func toMAC(mac [6]byte) uint64 {
	var head [8]byte
	copy(head[2:], mac[:])
	return binary.LittleEndian.Uint64(head[:])
}

func fromMAC(word uint64) (mac [6]byte) {
	var head [8]byte
	binary.LittleEndian.PutUint64(head[:], word)
	copy(mac[:], head[2:])
	return mac
}

const minPrefix6 = 64 // the hash fills no more bits

// notedFlags are those that the tables decide.
const notedFlags = bpf.MuxSettingsFlagSETTINGS_ALL_PORTS | bpf.MuxSettingsFlagSETTINGS_SNAT

// NoteFlags sets the pool's flags by the tables: whether packets have to look for an endpoint of all ports, and for
// the owner of a port range.
func (t *Table) NoteFlags(allPorts, snat bool) error {
	var flags bpf.MuxSettingsFlag
	if allPorts {
		flags |= bpf.MuxSettingsFlagSETTINGS_ALL_PORTS
	}
	if snat {
		flags |= bpf.MuxSettingsFlagSETTINGS_SNAT
	}
	row, err := ReadRow(t.tables)
	if err != nil || row.Flags&uint32(notedFlags) == uint32(flags) {
		return err
	}
	return t.write(func(row *bpf.MuxMuxSettings) { row.Flags = row.Flags&^uint32(notedFlags) | uint32(flags) })
}

// Settings reads the live row; it is all zero before the first Set.
func (t *Table) Settings() (Settings, error) {
	row, err := ReadRow(t.tables)
	return FromRow(row), err
}

// SetGeneration notes which version of the desired state the tables hold.
func (t *Table) SetGeneration(g model.Generation) error {
	return t.write(func(row *bpf.MuxMuxSettings) { row.Generation = uint64(g) })
}

// Generation is what SetGeneration noted last, by whichever process.
func (t *Table) Generation() (model.Generation, error) {
	row, err := ReadRow(t.tables)
	return model.Generation(row.Generation), err
}

// FromRow is what Set wrote.
func FromRow(row bpf.MuxMuxSettings) Settings {
	p := Settings{HashKey: bpf.FromHashKey(row.HashKey), MTU: int(row.Mtu), MAC: fromMAC(row.Mac), Encapsulation: IPIP}
	if row.Flags&uint32(bpf.MuxSettingsFlagSETTINGS_GUE) != 0 {
		p.Encapsulation = GUE
	}
	p.Source4, p.Source6 = bpf.FromAddress(row.Source4), bpf.FromAddress(row.Source6)
	if row.Flags&uint32(bpf.MuxSettingsFlagSETTINGS_SPREAD4) != 0 {
		p.Prefix4, p.Source4 = bpf.FromSpread(row.Source4, row.Spread4), netip.Addr{}
	}
	if row.Flags&uint32(bpf.MuxSettingsFlagSETTINGS_SPREAD6) != 0 {
		p.Prefix6, p.Source6 = bpf.FromSpread(row.Source6, row.Spread6), netip.Addr{}
	}
	return p
}

// ReadRow reads the row as it is.
func ReadRow(t *bpf.Tables) (row bpf.MuxMuxSettings, err error) {
	if err := t.Settings.Lookup(uint32(0), &row); err != nil {
		return row, fmt.Errorf("read settings: %w", err)
	}
	return row, nil
}

func (t *Table) write(change func(*bpf.MuxMuxSettings)) error {
	row, err := ReadRow(t.tables)
	if err != nil {
		return err
	}
	change(&row)
	if err := t.tables.Settings.Put(uint32(0), row); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	return nil
}

// Source is one outer source of the family.
func (s Settings) Source(v4 bool) netip.Addr {
	addr, prefix := s.Source6, s.Prefix6
	if v4 {
		addr, prefix = s.Source4, s.Prefix4
	}
	if prefix.IsValid() {
		return prefix.Masked().Addr()
	}
	return addr
}
