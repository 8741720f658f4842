package snat

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
)

// Notice is a message of the programs about a workload's own connection.
type Notice struct {
	Kind     NoticeKind
	Number   uint32     // of the workload in the tables, for Unhold
	Workload netip.Addr // its address
	Flow     Flow       // not with NoticeLow
	Order    uint32     // of the packet among those of its flow that wait, from 1
	Frame    []byte     // of NoticeRefused and NoticeFull the beginning alone
	L3, L4   int        // offsets in the frame
	Ifindex  int        // where the workload's packets come from; 0: native
}

// NoticeKind says what a Notice is of.
type NoticeKind uint8

// The kinds.
const (
	NoticeQueued  = NoticeKind(bpf.AgentSnatNoticeSNAT_NOTICE_QUEUE)   // the packet waits for a port
	NoticeRefused = NoticeKind(bpf.AgentSnatNoticeSNAT_NOTICE_REFUSED) // it was dropped: there are no ports
	NoticeLow     = NoticeKind(bpf.AgentSnatNoticeSNAT_NOTICE_LOW)     // few ports are left
	NoticeFull    = NoticeKind(bpf.AgentSnatNoticeSNAT_NOTICE_FULL)    // it was dropped: there was no room for its flow
)

// Notices reads the messages.
type Notices struct {
	t      *Translator
	reader *ringbuf.Reader
}

// Notices opens the ring of messages. There is one reader at a time.
func (t *Translator) Notices() (*Notices, error) {
	reader, err := ringbuf.NewReader(t.objects.SnatNotices)
	if err != nil {
		return nil, fmt.Errorf("read notices of source NAT: %w", err)
	}
	return &Notices{t, reader}, nil
}

// Close ends reads that wait.
func (n *Notices) Close() error { return n.reader.Close() }

// ErrNoNotice says that none came in time.
var ErrNoNotice = errors.New("no notice came in time")

// Read waits until the deadline for the next one. After Close it says fs.ErrClosed.
func (n *Notices) Read(deadline time.Time) (Notice, error) {
	n.reader.SetDeadline(deadline)
	for {
		record, err := n.reader.Read()
		if err != nil {
			if errors.Is(err, ringbuf.ErrClosed) {
				return Notice{}, fs.ErrClosed
			}
			return Notice{}, ErrNoNotice
		}
		if notice, ok := n.t.readNotice(record.RawSample); ok {
			return notice, nil
		}
	}
}

func (t *Translator) readNotice(data []byte) (Notice, bool) {
	var head bpf.AgentSnatQueueEntry
	size := binary.Size(head)
	if len(data) < size {
		return Notice{}, false
	}
	if _, err := binary.Decode(data, binary.NativeEndian, &head); err != nil {
		return Notice{}, false
	}
	frame := data[size:]
	if int(head.Length) > len(frame) || int(head.L4) > int(head.Length) || head.L3 > head.L4 {
		return Notice{}, false
	}
	notice := Notice{
		Kind: NoticeKind(head.Notice), Number: head.Workload, Order: head.Order, Ifindex: int(head.Ifindex),
		Frame: frame[:head.Length], L3: int(head.L3), L4: int(head.L4),
	}
	if notice.Kind != NoticeLow {
		notice.Flow = fromFlowKey(head.Key)
		notice.Workload = notice.Flow.Workload.Addr()
		return notice, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for dip, row := range t.rows {
		if row.number == head.Workload {
			notice.Workload = dip
			return notice, true
		}
	}
	return Notice{}, false
}
