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
