package diagnose

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// A capture in which nothing matched is a whole file without packets.
func TestPcapWithoutPackets(t *testing.T) {
	var out bytes.Buffer
	recorded := &pcapWriter{open: func() (io.WriteCloser, error) { return standardOutput{&out}, nil }, mux: "mux1"}
	if err := recorded.add(&weirv1.CaptureResponse{}); err != nil {
		t.Fatal(err)
	}
	if err := recorded.close(); err != nil {
		t.Fatal(err)
	}
	reader, err := pcapgo.NewNgReader(&out, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := reader.ReadPacketData(); !errors.Is(err, io.EOF) {
		t.Errorf("reading the first packet says %v, not the end of the file", err)
	}
}

// A capture that was refused leaves no file.
func TestPcapThatNeverBegan(t *testing.T) {
	recorded := &pcapWriter{open: func() (io.WriteCloser, error) { return nil, errors.New("opened") }}
	if err := recorded.close(); err != nil {
		t.Error(err)
	}
}

func TestPcapOnAFullDisk(t *testing.T) {
	recorded := &pcapWriter{open: func() (io.WriteCloser, error) { return os.OpenFile("/dev/full", os.O_WRONLY, 0) }, mux: "mux1"}
	if err := recorded.add(&weirv1.CaptureResponse{}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the first packets say %v, not that the disk is full", err)
	}
	if err := recorded.close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the end says %v, not that the disk is full", err)
	}
}

// The comment of a SYN that joins a connection has its token.
func TestPcapOfAJoin(t *testing.T) {
	flow, err := parseFlow("tcp", "198.51.100.7:40000", "203.0.113.10:80")
	if err != nil {
		t.Fatal(err)
	}
	frame, err := described{flags: "syn", tsecr: -1, token: 0x1f5a2c07}.frame(flow)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	recorded := &pcapWriter{open: func() (io.WriteCloser, error) { return standardOutput{&out}, nil }, mux: "mux1"}
	packet := &weirv1.CapturedPacket{Frame: frame, Length: uint32(len(frame)), Verdict: "forward_syn", Comment: "bucket 3 of 64"}
	if err := errors.Join(recorded.add(&weirv1.CaptureResponse{Packets: []*weirv1.CapturedPacket{packet}}), recorded.close()); err != nil {
		t.Fatal(err)
	}
	if want := []byte("forward_syn: bucket 3 of 64, joins 0x1f5a2c07"); !bytes.Contains(out.Bytes(), want) {
		t.Errorf("%q is not in %q", want, out.Bytes())
	}
}
