package codec

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// The documents of what managers compute and nodes say, with the names that their fields have on disk.
type (
	// NodeDocument is a registered mux or host.
	NodeDocument struct {
		Name      string         `json:"name"`
		Role      model.Role     `json:"role"`
		Addresses []netip.Addr   `json:"addresses"`
		Version   string         `json:"version"`
		Prefixes  []netip.Prefix `json:"prefixes,omitempty"`

		Aggregates  []netip.Prefix `json:"aggregates,omitempty"`
		NATPrefixes []netip.Prefix `json:"natPrefixes,omitempty"`
		Drained     time.Time      `json:"drained,omitzero"`
		Multipath   bool           `json:"multipath,omitempty"`
		PortBlocks  bool           `json:"portBlocks,omitempty"`

		NeighborPrefixes []netip.Prefix `json:"neighborPrefixes,omitempty"`
		MAC              string         `json:"mac,omitempty"`
	}
	// TableDocument is an endpoint's table.
	TableDocument struct {
		Rows    []rowDocument  `json:"rows"`
		Buckets []byte         `json:"buckets"` // slots, two bytes each, big-endian
		Closed  bool           `json:"closed,omitempty"`
		Moves   []moveDocument `json:"moves,omitempty"`
		Cookies model.Cookies  `json:"cookies,omitempty"`
		Settles time.Time      `json:"settles,omitzero"`
	}
	moveDocument struct {
		From    model.Slot `json:"from"`
		Since   time.Time  `json:"since"`
		Buckets []byte     `json:"buckets"` // numbers, two bytes each, big-endian, in order
	}
	rowDocument struct {
		Slot    model.Slot     `json:"slot" store:"id"`
		Down    bool           `json:"down,omitempty"`
		Backend netip.AddrPort `json:"backend"`
		Tunnel  netip.Addr     `json:"tunnel"`
		Freed   time.Time      `json:"freed,omitzero"`
	}
	// HealthDocument is the health of a backend.
	HealthDocument struct {
		Endpoint keyDocument    `json:"endpoint"`
		Backend  netip.AddrPort `json:"backend"`
		Health   model.Health   `json:"health"`
		Reason   string         `json:"reason,omitempty"`
		Silent   bool           `json:"silent,omitempty"`
	}
	// RestoredDocument marks a store that was restored.
	RestoredDocument struct {
		Settled bool `json:"settled,omitempty"` // what nodes hold is known
	}
	keyDocument struct {
		VIP      netip.Addr     `json:"vip"`
		Protocol model.Protocol `json:"protocol"`
		Port     uint16         `json:"port"`
	}
)

// NewTableDocument is the document of a table.
func NewTableDocument(t desired.Table) TableDocument {
	d := TableDocument{
		Rows: make([]rowDocument, 0, len(t.Rows)), Closed: t.Closed, Cookies: t.Cookies, Settles: t.Settles,
		Moves: movesToDocument(t.Moves),
	}
	for _, r := range t.Rows {
		d.Rows = append(d.Rows, rowDocument(r))
	}
	if len(t.Buckets) > 0 {
		d.Buckets = make([]byte, 0, 2*len(t.Buckets))
	}
	for _, slot := range t.Buckets {
		d.Buckets = binary.BigEndian.AppendUint16(d.Buckets, uint16(slot))
	}
	return d
}

// movesToDocument puts together the moves from one slot at one time.
func movesToDocument(moves []desired.Move) []moveDocument {
	type together struct {
		from  model.Slot
		since int64
	}
	var list []moveDocument
	at := map[together]int{}
	for _, m := range moves {
		key := together{m.From, m.Since.UnixNano()}
		i, there := at[key]
		if !there {
			i = len(list)
			at[key] = i
			list = append(list, moveDocument{From: m.From, Since: m.Since})
		}
		list[i].Buckets = binary.BigEndian.AppendUint16(list[i].Buckets, uint16(m.Bucket))
	}
	return list
}

// Table is the table of a document.
func (d TableDocument) Table() (desired.Table, error) {
	t := desired.Table{Closed: d.Closed, Cookies: d.Cookies, Settles: d.Settles}
	if len(d.Rows) > 0 {
		t.Rows = make([]desired.Row, len(d.Rows))
	}
	for i, r := range d.Rows {
		t.Rows[i] = desired.Row(r)
	}
	buckets, err := uint16s(d.Buckets)
	if err != nil {
		return t, err
	}
	if len(buckets) > 0 {
		t.Buckets = make([]model.Slot, len(buckets))
	}
	for i, slot := range buckets {
		t.Buckets[i] = model.Slot(slot)
	}
	for _, m := range d.Moves {
		moved, err := uint16s(m.Buckets)
		if err != nil {
			return t, err
		}
		for _, bucket := range moved {
			if int(bucket) >= len(t.Buckets) {
				return t, fmt.Errorf("bucket %d of %d moved", bucket, len(t.Buckets))
			}
			t.Moves = append(t.Moves, desired.Move{Bucket: uint32(bucket), From: m.From, Since: m.Since})
		}
	}
	slices.SortFunc(t.Moves, func(a, b desired.Move) int { return cmp.Compare(a.Bucket, b.Bucket) })
	return t, nil
}

func uint16s(packed []byte) ([]uint16, error) {
	if len(packed)%2 != 0 {
		return nil, errors.New("the buckets have an odd number of bytes")
	}
	numbers := make([]uint16, 0, len(packed)/2)
	for at := 0; at < len(packed); at += 2 {
		numbers = append(numbers, binary.BigEndian.Uint16(packed[at:]))
	}
	return numbers, nil
}

// NewHealthDocuments are the documents of what a host says of its backends.
func NewHealthDocuments(all desired.HostHealth) []HealthDocument {
	list := make([]HealthDocument, 0, len(all))
	for _, h := range all {
		list = append(list, HealthDocument{keyDocument(h.Endpoint), h.Backend, h.Health, h.Reason, h.Silent})
	}
	return list
}

// HostHealth is what a host says of its backends, by the documents of it.
func HostHealth(list []HealthDocument) desired.HostHealth {
	all := make(desired.HostHealth, len(list))
	for _, d := range list {
		h := model.BackendHealth{
			Endpoint: model.EndpointKey(d.Endpoint), Backend: d.Backend, Health: d.Health, Reason: d.Reason, Silent: d.Silent,
		}
		all[desired.HealthKey{Endpoint: h.Endpoint, Backend: h.Backend}] = h
	}
	return all
}
