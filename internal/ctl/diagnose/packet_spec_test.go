package diagnose

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

func TestDescribedFrames(t *testing.T) {
	for name, c := range map[string]struct {
		packet                        described
		protocol, source, destination string
		check                         func(*layers.TCP) bool
		length                        int
	}{
		"syn": {
			described{flags: "syn", tsecr: -1},
			"tcp", "198.51.100.7:40000", "203.0.113.10:80",
			func(l *layers.TCP) bool { return l.SYN && !l.ACK && len(l.Options) == 0 }, 60, // Ethernet pads it
		},
		"cookie": {
			described{flags: "ack|PSH", tsecr: 0x4001, size: 1400},
			"tcp", "[2001:db8::7]:40000", "[2001:db8::1]:80",
			func(l *layers.TCP) bool {
				return !l.SYN && l.ACK && l.PSH && bytes.Equal(l.Contents[20:], []byte{1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0x40, 1})
			}, 1414,
		},
		"join": {
			described{flags: "syn", tsecr: -1, token: 0x1f5a2c07},
			"tcp", "[2001:db8::7]:40000", "[2001:db8::1]:80",
			func(l *layers.TCP) bool {
				return l.SYN && bytes.Equal(l.Contents[20:], []byte{30, 12, 0x10, 1, 0x1f, 0x5a, 0x2c, 7, 0, 0, 0, 1})
			}, 86,
		},
		"udp": {described{tsecr: -1}, "udp", "198.51.100.7:40000", "203.0.113.10:53", nil, 60},
	} {
		t.Run(name, func(t *testing.T) {
			flow, err := parseFlow(c.protocol, c.source, c.destination)
			if err != nil {
				t.Fatal(err)
			}
			frame, err := c.packet.frame(flow)
			if err != nil {
				t.Fatal(err)
			}
			if got := describeFrame(frame); got != flow.String() || len(frame) != c.length {
				t.Errorf("frame of %d bytes is %s, want %d of %s", len(frame), got, c.length, flow)
			}
			if joined, joins := joinedBy(frame); joins != (name == "join") || joined != c.packet.token {
				t.Errorf("joins %s: %t", joined.String(), joins)
			}
			tcp, _ := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default).TransportLayer().(*layers.TCP)
			if c.check != nil && !c.check(tcp) {
				t.Errorf("segment is %+v", tcp)
			}
		})
	}
}

// A token is of a SYN, and of 32 bits.
func TestTokens(t *testing.T) {
	var read token
	for text, want := range map[string]token{"0x1f5a2c07": 0x1f5a2c07, "7": 7, "": 0, "0": 0, "0x1f5a2c0700": 0, "1f5a2c07": 0, "-1": 0} {
		read = 0
		if err := read.Set(text); read != want || (err == nil) != (want != 0) {
			t.Errorf("%q is %s, %v", text, read.String(), err)
		}
	}
	flow, err := parseFlow("tcp", "198.51.100.7:40000", "203.0.113.10:80")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (described{flags: "ack", tsecr: -1, token: 7}).frame(flow); err == nil {
		t.Error("a segment that is no SYN has a token")
	}
}

func TestFramesOfFiles(t *testing.T) {
	folder, frame := t.TempDir(), func(n byte) []byte { return bytes.Repeat([]byte{n}, 60) }
	write := func(name string, record func(io.Writer) error) string {
		t.Helper()
		path := filepath.Join(folder, name)
		var content bytes.Buffer
		if err := errors.Join(record(&content), os.WriteFile(path, content.Bytes(), 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	info := func(length int) gopacket.CaptureInfo {
		return gopacket.CaptureInfo{Timestamp: time.Unix(1, 0), CaptureLength: 60, Length: length}
	}
	ng := write("a.pcapng", func(file io.Writer) error {
		w, err := pcapgo.NewNgWriter(file, layers.LinkTypeEthernet)
		if err != nil {
			return err
		}
		for n := range byte(3) {
			if err := w.WritePacket(info(60+4*int(n/2)), frame(n)); err != nil {
				return err
			}
		}
		return w.Flush()
	})
	old := write("a.pcap", func(file io.Writer) error {
		w := pcapgo.NewWriter(file)
		if err := w.WriteFileHeader(65535, layers.LinkTypeEthernet); err != nil {
			return err
		}
		return w.WritePacket(info(60), frame(9))
	})
	text := write("a.txt", func(file io.Writer) error {
		_, err := io.WriteString(file, "not a capture, but a text of some length")
		return err
	})
	for _, c := range []struct {
		path   string
		number int
		want   byte
		err    string
	}{
		{ng, 1, 0, ""},
		{ng, 2, 1, ""},
		{ng, 3, 0, "only 60 of its 64 bytes were captured"},
		{ng, 4, 0, "has 3 packets"},
		{old, 1, 9, ""},
		{text, 1, 0, "neither pcap nor pcapng"},
		{filepath.Join(folder, "none"), 1, 0, "no such file"},
	} {
		got, err := frameOfFile(c.path, c.number)
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("packet %d of %s: error is %v, want %q", c.number, c.path, err, c.err)
		case c.err == "" && (err != nil || !bytes.Equal(got, frame(c.want))):
			t.Errorf("packet %d of %s is %x, error %v", c.number, c.path, got, err)
		}
	}
}
