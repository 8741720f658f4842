package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
)

// KeepAlive sends a keepalive probe to each workload that has been silent for a third of the time after which its
// client would take the next timestamp for an old one. The probe is a segment as from the client, with an old sequence
// number; TCP answers it with an acknowledgement (RFC 9293, section 3.10.7.4), and the client's record of the timestamp
// moves on. It returns how many probes it sent, and must be called in the uplink's network namespace.
func (t *Tracker) KeepAlive(now time.Duration) (asked int, err error) {
	var due Probes
	for _, table := range t.Tables() {
		err = Each(table, func(key bpf.AgentSessionKey, row bpf.AgentSession) error {
			if isSilent(key, row, now) {
				due = append(due, newProbe(key, row))
			}
			return nil
		})
		if err != nil {
			return 0, fmt.Errorf("find silent sessions: %w", err)
		}
	}
	return due.Send()
}

// Probes are keepalive probes, by whose answers workloads tell whether they have a connection.
type Probes []Probe

// Send sends them, and says how many. It must be called in the uplink's network namespace.
func (due Probes) Send() (sent int, err error) {
	sockets := map[bool]int{} // by whether they are of IPv4
	defer func() {
		for _, socket := range sockets {
			err = errors.Join(err, unix.Close(socket))
		}
	}()
	for _, p := range due {
		if failed := p.send(sockets); failed != nil {
			// A workload that is down for now can't be reached; others can.
			err = fmt.Errorf("ask workload %s: %w", p.To, failed)
			continue
		}
		sent++
	}
	return sent, err
}

// silentShare is the part of a client's bound after which its workload is asked: twice in vain, and
// the third time is still in time.
const silentShare = 3

func isSilent(key bpf.AgentSessionKey, row bpf.AgentSession, now time.Duration) bool {
	if row.Cookie == 0 || row.Tsval == 0 || StateOf(key.Protocol, row.Events) != StateEstablished {
		return false
	}
	bound := CookieBound(CookieTick(uint32(row.CookieScale)))
	return now-time.Duration(row.LastSent) >= bound/silentShare
}

// Probe is a segment to one end of a connection as from the other.
type Probe struct {
	From, To     netip.AddrPort
	Seq, Ack     uint32
	Tsval, Tsecr uint32
}

func newProbe(key bpf.AgentSessionKey, row bpf.AgentSession) Probe {
	tsecr := row.Tsval
	if row.Events&bpf.AgentSessionEventSESSION_REPLAYED != 0 {
		tsecr -= row.ClockShift
	}
	return Probe{
		From: bpf.FromAddrPort(key.Client, key.ClientPort), To: bpf.FromAddrPort(key.Dip, key.DipPort),
		Seq: row.ClientNext - 1, Ack: row.WorkloadSeq,
		Tsval: row.ClientTsval, Tsecr: tsecr,
	}
}

// send writes the packet to a socket that takes IP headers, which is opened when first needed. The
// route leads to the host's own stack, or by the workload's interface.
func (p Probe) send(sockets map[bool]int) error {
	v4 := p.To.Addr().Is4()
	family := unix.AF_INET6
	var to unix.Sockaddr = &unix.SockaddrInet6{Addr: p.To.Addr().As16()}
	if v4 {
		family, to = unix.AF_INET, &unix.SockaddrInet4{Addr: p.To.Addr().As4()}
	}
	socket, open := sockets[v4]
	if !open {
		var err error
		if socket, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW); err != nil {
			return err
		}
		sockets[v4] = socket
	}
	return unix.Sendto(socket, p.packet(), 0, to)
}

// packet is p with its IP header, of which the kernel fills in length and checksum of IPv4.
func (p Probe) packet() []byte {
	const hops = 64
	segment := p.segment()
	source, destination := p.From.Addr().AsSlice(), p.To.Addr().AsSlice()
	sum := Checksum(source, 0) + Checksum(destination, 0) + uint32(model.TCP) + uint32(len(segment))
	binary.BigEndian.PutUint16(segment[16:], ^Fold(Checksum(segment, sum)))

	var header []byte
	if p.To.Addr().Is4() {
		header = []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, hops, byte(model.TCP), 0, 0}
	} else {
		header = []byte{0x60, 0, 0, 0, 0, byte(len(segment)), byte(model.TCP), hops}
	}
	header = append(append(header, source...), destination...)
	return append(header, segment...)
}

// segment is an empty one that carries timestamps, without its checksum.
func (p Probe) segment() []byte {
	const words, ackFlag, window = 8, 0x10, 0xffff
	s := binary.BigEndian.AppendUint16(nil, p.From.Port())
	s = binary.BigEndian.AppendUint16(s, p.To.Port())
	s = binary.BigEndian.AppendUint32(s, p.Seq)
	s = binary.BigEndian.AppendUint32(s, p.Ack)
	s = append(s, words<<4, ackFlag)
	s = binary.BigEndian.AppendUint16(s, window)
	s = append(s, 0, 0, 0, 0)  // checksum, urgent pointer
	s = append(s, 1, 1, 8, 10) // NOP, NOP, timestamps
	s = binary.BigEndian.AppendUint32(s, p.Tsval)
	return binary.BigEndian.AppendUint32(s, p.Tsecr)
}

// Checksum adds data, of an even length, to a sum that Fold ends.
func Checksum(data []byte, sum uint32) uint32 {
	for i := 0; i < len(data); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	return sum
}

// Fold is the sum in 16 bits.
func Fold(sum uint32) uint16 {
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}
