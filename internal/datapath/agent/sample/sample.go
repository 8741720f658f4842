// Package sample reads the samples that the agent's programs take of what clients send to VIPs.
package sample

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
)

// Packet is a sample.
type Packet struct {
	VIP, Client netip.Addr
	Bytes       uint64 // estimated of all packets that it stands for
}

// period is twice the mean number of packets of which one is a sample: it and those before it.
const period = uint64(bpf.AgentSampleGapSAMPLE_GAP_MOST) + 2

// Samples are those of a data plane.
type Samples struct {
	objects *bpf.AgentObjects
	reader  *ringbuf.Reader // nil: not read yet
	record  ringbuf.Record
}

// New is of the tables of objects.
func New(objects *bpf.AgentObjects) *Samples { return &Samples{objects: objects} }

// EachSample calls take for the samples that were not read before. It does not wait. One goroutine at a time may call it.
func (s *Samples) EachSample(take func(Packet)) (err error) {
	if s.reader == nil {
		if s.reader, err = ringbuf.NewReader(s.objects.Samples); err != nil {
			return fmt.Errorf("read table samples: %w", err)
		}
		s.reader.SetDeadline(time.Unix(1, 0)) // what is not there is not waited for
	}
	for {
		err := s.reader.ReadInto(&s.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		var row bpf.AgentSample
		if err == nil {
			_, err = binary.Decode(s.record.RawSample, binary.NativeEndian, &row)
		}
		if err != nil {
			return fmt.Errorf("read table samples: %w", err)
		}
		take(Packet{bpf.FromAddress(row.Vip), bpf.FromAddress(row.Source), uint64(row.Bytes) * period / 2})
	}
}

// CloseSamples ends reading.
func (s *Samples) CloseSamples() error {
	if s.reader == nil {
		return nil
	}
	return s.reader.Close()
}
