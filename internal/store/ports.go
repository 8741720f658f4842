package store

import (
	"fmt"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snatport"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/keyspace"
)

// The changes of who has which ports.

func (b *builder) putPorts(key model.SNATKey, h snatport.Allocation, generation model.Generation) {
	b.next.Ports.Set(key, h)
	b.next.PortsWritten.Set(key, generation)
	b.delta.Ports[key] = true
}

func (b *builder) removePorts(key model.SNATKey) {
	b.next.Ports.Delete(key)
	b.next.PortsWritten.Delete(key)
	b.delta.Ports[key] = true
}

func (b *builder) decodePorts(key string, value []byte, generation model.Generation) error {
	of, err := keyspace.ParsePorts(key)
	if err != nil {
		return err
	}
	d, err := decodeIn[codec.PortsDocument](b, key, value)
	if err != nil {
		return err
	}
	h, err := d.Ports()
	if err != nil {
		return fmt.Errorf("read %s of the store: %w", key, err)
	}
	b.putPorts(of, h, generation)
	return nil
}
