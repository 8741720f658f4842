package codec

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snatport"
)

type (
	// PortsDocument is the ports of a SNAT client. Ranges are two bytes each, big-endian, in order.
	PortsDocument struct {
		Ranges      []byte                `json:"ranges,omitempty"`
		Reclaim     []byte                `json:"reclaim,omitempty"`
		Host        string                `json:"host,omitempty"`
		Quarantined []quarantinedDocument `json:"quarantined,omitempty"`
	}
	quarantinedDocument struct {
		Since  time.Time `json:"since"`
		Ranges []byte    `json:"ranges"`
	}
)

// NewPortsDocument is the document of a SNAT client's ports.
func NewPortsDocument(h snatport.Allocation) PortsDocument {
	d := PortsDocument{Ranges: pack(h.Ranges), Reclaim: pack(h.Reclaim), Host: h.Host}
	for _, r := range h.Quarantined {
		d.Quarantined = append(d.Quarantined, quarantinedDocument{Since: r.Since, Ranges: pack(r.Ranges)})
	}
	return d
}

// Ports are the ports of a document.
func (d PortsDocument) Ports() (h snatport.Allocation, err error) {
	h.Host = d.Host
	if h.Ranges, err = unpack(d.Ranges); err != nil {
		return h, err
	}
	if h.Reclaim, err = unpack(d.Reclaim); err != nil {
		return h, err
	}
	for _, r := range d.Quarantined {
		ranges, err := unpack(r.Ranges)
		if err != nil {
			return h, err
		}
		h.Quarantined = append(h.Quarantined, snatport.Quarantined{Since: r.Since, Ranges: ranges})
	}
	return h, nil
}

func pack(ranges []model.Range) []byte {
	packed := make([]byte, 0, 2*len(ranges))
	for _, r := range ranges {
		packed = binary.BigEndian.AppendUint16(packed, uint16(r))
	}
	return packed
}

func unpack(packed []byte) ([]model.Range, error) {
	numbers, err := uint16s(packed)
	if err != nil || len(numbers) == 0 {
		return nil, err
	}
	ranges := make([]model.Range, 0, len(numbers))
	for _, n := range numbers {
		if n > uint16(model.RangeOf(65535)) {
			return nil, fmt.Errorf("range %d is none", n)
		}
		ranges = append(ranges, model.Range(n))
	}
	return ranges, nil
}
