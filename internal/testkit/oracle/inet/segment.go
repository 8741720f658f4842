package inet

import "encoding/binary"

// Segment is what the state of a connection notes of one.
type Segment struct {
	Seq, Ack           uint32
	Next               uint32 // sequence number of what follows it
	FIN, SYN, RST, ACK bool
}

// ReadSegment is what a TCP header, in one piece with what it carries, says.
func ReadSegment(tcp []byte) Segment {
	flags := tcp[13]
	seq := binary.BigEndian.Uint32(tcp[4:])
	return Segment{
		Seq: seq, Ack: binary.BigEndian.Uint32(tcp[8:]),
		Next: seq + uint32(len(tcp)-int(tcp[12]>>4)*4) + uint32(flags>>1&1) + uint32(flags&1),
		FIN:  flags&1 != 0, SYN: flags&2 != 0, RST: flags&4 != 0, ACK: flags&16 != 0,
	}
}

// Opens says whether a connection begins with it.
func (s Segment) Opens() bool { return s.SYN && !s.ACK }
