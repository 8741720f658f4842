package wire

import (
	"errors"
	"fmt"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snat"
)

// rangesOrDelta writes a list, or what differs from the one that the receiver has, if that is shorter.
func rangesOrDelta(l, before snat.List) ([]uint32, *weirv1.RangesDelta) {
	d, short := l.Since(before)
	if !short {
		return RangesToProto(l.Ranges), nil
	}
	return nil, &weirv1.RangesDelta{After: uint64(d.After), Added: RangesToProto(d.Added), Removed: RangesToProto(d.Removed)}
}

// rangesMessage is a message that holds a list of ranges, or what differs from one.
type rangesMessage interface {
	GetRanges() []uint32
	GetDelta() *weirv1.RangesDelta
	GetWritten() uint64
}

// listFromProto reads the list of a message, which may be what differs from before.
func listFromProto(p rangesMessage, before snat.List) (snat.List, error) {
	var f fields
	l := snat.List{Written: model.Generation(p.GetWritten())}
	d := p.GetDelta()
	if d == nil {
		l.Ranges = f.ranges("ranges", p.GetRanges())
		return l, f.Err()
	}
	delta := snat.Delta{
		After: model.Generation(d.GetAfter()), Written: l.Written,
		Added: f.ranges("delta.added", d.GetAdded()), Removed: f.ranges("delta.removed", d.GetRemoved()),
	}
	if len(p.GetRanges()) > 0 {
		f.Refuse("ranges", "must be left out beside delta")
	}
	if err := f.Err(); err != nil {
		return l, err
	}
	l, err := before.Apply(delta)
	return l, compile.Below("delta", err)
}

// PortAllocationToProto writes the list of an answer to a host, or what differs from the one that the host has.
func PortAllocationToProto(l, before snat.List) *weirv1.PortAllocation {
	p := &weirv1.PortAllocation{Written: uint64(l.Written)}
	p.Ranges, p.Delta = rangesOrDelta(l, before)
	return p
}

// PortAllocationFromProto reads what PortAllocationToProto wrote.
func PortAllocationFromProto(p *weirv1.PortAllocation, before snat.List) (snat.List, error) {
	return listFromProto(p, before)
}

// PortLists are the lists of ranges that a stream has told a node, which deltas follow: in the place of these it puts whole
// lists into messages. The zero value is that of a stream that begins. After an error the stream must begin anew.
type PortLists struct{ told map[model.SNATKey]snat.List }

// CompleteMux completes a message to a mux.
func (l *PortLists) CompleteMux(m *weirv1.SyncMuxResponse) error {
	return complete(l, m.GetSnapshot(), m.GetSnat(), m.GetSnatRemoved(), func(p *weirv1.MuxSNAT, ranges []uint32) {
		p.Ranges, p.Delta = ranges, nil
	})
}

// CompleteHost completes a message to a host.
func (l *PortLists) CompleteHost(m *weirv1.SyncHostResponse) error {
	return complete(l, m.GetSnatSnapshot(), m.GetSnat(), m.GetSnatRemoved(), func(p *weirv1.HostSNAT, ranges []uint32) {
		p.Ranges, p.Delta = ranges, nil
	})
}

// workloadMessage is what a stream tells of a workload.
type workloadMessage interface {
	rangesMessage
	GetVip() string
	GetAddress() string
}

func complete[M workloadMessage](l *PortLists, snapshot bool, put []M, removed []*weirv1.SNATKey, replace func(M, []uint32)) error {
	if snapshot || l.told == nil {
		l.told = map[model.SNATKey]snat.List{}
	}
	gone, _ := snatKeysFromProto(removed) // what is wrong with keys and whole lists is told when the message is read
	for _, key := range gone {
		delete(l.told, key)
	}
	var errs []error
	for i, p := range put {
		var f fields
		key := f.snatKey(p)
		list, err := listFromProto(p, l.told[key])
		if l.told[key] = list; p.GetDelta() != nil {
			errs = append(errs, compile.Below(fmt.Sprintf("snat[%d]", i), err))
			replace(p, RangesToProto(list.Ranges))
		}
	}
	return errors.Join(errs...)
}
