package diagnose

import (
	"errors"
	"io"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// The interfaces of a capture's file, in their order.
const (
	pcapIn = iota
	pcapOut
)

// pcapWriter writes a capture as pcapng. Nothing is opened before the manager took the task, so that a
// refusal leaves no empty file in place of a good one.
type pcapWriter struct {
	open   func() (io.WriteCloser, error)
	mux    string
	file   io.WriteCloser
	writer *pcapgo.NgWriter

	in, out int
	lost    uint64
}

func (t *pcapWriter) begin() (err error) {
	if t.file, err = t.open(); err != nil {
		return err
	}
	side := func(name, what string) pcapgo.NgInterface {
		return pcapgo.NgInterface{
			Name: t.mux + " " + name, Description: what, LinkType: layers.LinkTypeEthernet, SnapLength: 0,
			TimestampResolution: 9, OS: "linux",
		}
	}
	options := pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "weir capture"}}
	t.writer, err = pcapgo.NewNgWriterInterface(t.file, side("in", "packets as they came to the mux"), options)
	if err != nil {
		return err
	}
	_, err = t.writer.AddInterface(side("out", "packets as they left the mux"))
	return err
}

// add writes packets, at once: the file may be a pipe.
func (t *pcapWriter) add(r *weirv1.CaptureResponse) error {
	if t.writer == nil {
		if err := t.begin(); err != nil {
			return err
		}
	}
	t.lost = max(t.lost, r.GetLost())
	for _, p := range r.GetPackets() {
		if err := t.packet(p); err != nil {
			return err
		}
	}
	return t.writer.Flush()
}

func (t *pcapWriter) packet(p *weirv1.CapturedPacket) error {
	info := gopacket.CaptureInfo{
		Timestamp: p.GetTime().AsTime(), CaptureLength: len(p.GetFrame()), Length: int(p.GetLength()), InterfaceIndex: pcapIn,
	}
	t.in++
	if p.GetDirection() == "out" {
		info.InterfaceIndex = pcapOut
		t.in--
		t.out++
	}
	comment := p.GetVerdict()
	if p.GetComment() != "" {
		comment += ": " + p.GetComment()
	}
	if token, joins := joinedBy(p.GetFrame()); joins {
		comment += ", joins " + token.String()
	}
	return t.writer.WritePacketWithOptions(info, p.GetFrame(), pcapgo.NgPacketOptions{Comments: []string{comment}})
}

func (t *pcapWriter) close() error {
	if t.file == nil {
		return nil
	}
	var err error
	if t.writer != nil {
		err = t.writer.Flush()
	}
	return errors.Join(err, t.file.Close())
}
