package store

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

const prefixPorts = root + "ports/"

type (
	// Ranges are two bytes each, big-endian, in order.
	portsDocument struct {
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

// portsKey is where the ranges of a workload lie: ports/203.0.113.20/10.1.0.2.
func portsKey(k model.SNATKey) string { return fmt.Sprintf("%s%s/%s", prefixPorts, k.VIP, k.Address) }

// parsePortsKey reads what portsKey wrote.
func parsePortsKey(key string) (model.SNATKey, error) {
	first, second, _ := strings.Cut(strings.TrimPrefix(key, prefixPorts), "/")
	vip, err := netip.ParseAddr(first)
	if err != nil {
		return model.SNATKey{}, fmt.Errorf("read key %s of the store: %w", key, err)
	}
	address, err := netip.ParseAddr(second)
	if err != nil {
		return model.SNATKey{}, fmt.Errorf("read key %s of the store: %w", key, err)
	}
	return model.SNATKey{VIP: vip, Address: address}, nil
}

func portsToDocument(h desired.PortAllocation) portsDocument {
	d := portsDocument{Ranges: pack(h.Ranges), Reclaim: pack(h.Reclaim), Host: h.Host}
	for _, r := range h.Quarantined {
		d.Quarantined = append(d.Quarantined, quarantinedDocument{Since: r.Since, Ranges: pack(r.Ranges)})
	}
	return d
}

func portsFromDocument(d portsDocument) (h desired.PortAllocation, err error) {
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
		h.Quarantined = append(h.Quarantined, desired.Quarantined{Since: r.Since, Ranges: ranges})
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

// The changes of who has which ports.

func (b *builder) putPorts(key model.SNATKey, h desired.PortAllocation, generation model.Generation) {
	b.next.PutPorts(key, h)
	b.next.PortsWritten.Set(key, generation)
	b.delta.Ports[key] = true
}

func (b *builder) removePorts(key model.SNATKey) {
	b.next.RemovePorts(key)
	b.next.PortsWritten.Delete(key)
	b.delta.Ports[key] = true
}

func (b *builder) decodePorts(key string, value []byte, generation model.Generation) error {
	of, err := parsePortsKey(key)
	if err != nil {
		return err
	}
	d, err := decodeIn[portsDocument](b, key, value)
	if err != nil {
		return err
	}
	h, err := portsFromDocument(d)
	if err != nil {
		return fmt.Errorf("read %s of the store: %w", key, err)
	}
	b.putPorts(of, h, generation)
	return nil
}
