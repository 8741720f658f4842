// Package wireshark runs the dissector of deploy/wireshark by tshark.
package wireshark

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// script is the dissector, seen from here.
const script = "../../deploy/wireshark/weir_gue.lua"

// fields are what a line of tshark tells, in order.
var fields = []string{
	"weir_gue.hlen", "weir_gue.protocol", "weir_gue.step", "weir_gue.kind", "weir_gue.source_port", "weir_gue.destination_port",
	"weir_gue.other", "weir_gue.other6", "ip.dst", "ipv6.dst", "tcp.dstport", "_ws.expert.message",
}

func words(parts ...[]byte) []byte { return slices.Concat(parts...) }

// weir is struct gue_weir.
func weir(step, kind byte, source, destination uint16) []byte {
	b := []byte{1, step, kind, 0}
	b = binary.BigEndian.AppendUint16(b, source)
	return binary.BigEndian.AppendUint16(b, destination)
}

// frame is an inner TCP packet behind a GUE header with the private data.
func frame(t *testing.T, private []byte) []byte {
	t.Helper()
	inner := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: net.IP{198, 51, 100, 7}, DstIP: net.IP{203, 0, 113, 10}}
	tcp := &layers.TCP{SrcPort: 40000, DstPort: 80, ACK: true, Window: 1000}
	outer := &layers.IPv6{
		Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolUDP, SrcIP: net.ParseIP("fd00::1"), DstIP: net.ParseIP("fd00::2"),
	}
	udp := &layers.UDP{SrcPort: 50000, DstPort: 6080}
	for _, err := range []error{tcp.SetNetworkLayerForChecksum(inner), udp.SetNetworkLayerForChecksum(outer)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	inside := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(inside, options, inner, tcp); err != nil {
		t.Fatal(err)
	}
	gue := words([]byte{byte(len(private) / 4), 4, 0, 0}, private, inside.Bytes())
	whole := gopacket.NewSerializeBuffer()
	ethernet := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv6}
	if err := gopacket.SerializeLayers(whole, options, ethernet, outer, udp, gopacket.Payload(gue)); err != nil {
		t.Fatal(err)
	}
	return whole.Bytes()
}

func record(t *testing.T, folder string, frames [][]byte) string {
	t.Helper()
	path := filepath.Join(folder, "gue.pcapng")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w, err := pcapgo.NewNgWriter(file, layers.LinkTypeEthernet)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range frames {
		info := gopacket.CaptureInfo{Timestamp: time.Unix(1, 0), CaptureLength: len(f), Length: len(f)}
		if err := w.WritePacket(info, f); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return path
}

// nobody runs tshark: as root Wireshark 4.4 and later run no scripts.
const nobody = 65534

// readable is a folder of the script that nobody may read.
func readable(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "weir-wireshark-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	text, err := os.ReadFile(script)
	if err := errors.Join(err, os.Chmod(folder, 0o755), os.WriteFile(filepath.Join(folder, filepath.Base(script)), text, 0o644)); err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestDissector(t *testing.T) {
	other4, other6 := []byte{10, 3, 1, 11}, net.ParseIP("fd00::3").To16()
	cases := []struct {
		name    string
		private []byte
		want    string // of fields
	}{
		{"plain", nil, "0|4|||||||203.0.113.10|fd00::2|80|"},
		{"ask, v4", words(weir(1, 0, 0, 0), other4), "3|4|1|0|||10.3.1.11||203.0.113.10|fd00::2|80|"},
		{"chained, v6", words(weir(2, 0, 0, 0), other6), "6|4|2|0||||fd00::3|203.0.113.10|fd00::2|80|"},
		{"fragment", weir(0, 1, 40000, 80), "2|4|0|1|40000|80|||203.0.113.10|fd00::2|80|"},
		{"join", words(weir(4, 0, 0, 0), other4), "3|4|4|0|||10.3.1.11||203.0.113.10|fd00::2|80|"},
		{"token", words(weir(5, 4, 0x1f5a, 0x2c07), other6), "6|4|5|4|8026|11271||fd00::3|203.0.113.10|fd00::2|80|"},
		{"not Weir's", []byte{9, 9, 9, 9}, "1|4|||||||203.0.113.10|fd00::2|80|Private data that is not Weir's"},
	}
	var frames [][]byte
	for _, c := range cases {
		frames = append(frames, frame(t, c.private))
	}
	short := frame(t, nil)
	short[14+40+8] = 0x1f // hlen beyond the packet
	frames = append(frames, short[:14+40+8+4+20])

	folder := readable(t)
	args := []string{"-X", "lua_script:" + filepath.Join(folder, filepath.Base(script)), "-r", record(t, folder, frames), "-T", "fields", "-E", "separator=|", "-o", "tcp.analyze_sequence_numbers:FALSE"}
	for _, field := range fields {
		args = append(args, "-e", field)
	}
	cmd := exec.Command("tshark", args...)
	cmd.Env = append(os.Environ(), "HOME="+folder)
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v\n%s", err, complaints.String())
	}
	if strings.Contains(complaints.String(), "Lua:") {
		t.Errorf("tshark complains:\n%s", complaints.String())
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(frames) {
		t.Fatalf("tshark tells %d lines of %d packets:\n%s", len(lines), len(frames), out)
	}
	for i, c := range cases {
		if lines[i] != c.want {
			t.Errorf("%s: tshark tells %q, want %q", c.name, lines[i], c.want)
		}
	}
	if last := lines[len(cases)]; !strings.Contains(last, "The header is longer than the packet") {
		t.Errorf("too short: tshark tells %q", last)
	}
}
