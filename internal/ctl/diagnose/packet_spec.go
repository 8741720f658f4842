package diagnose

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/weirlb/weir/internal/model"
)

// described is the packet that flags describe.
type described struct {
	flags string // of TCP: "syn", "ack|psh"
	tsecr int64  // of TCP's timestamp option; negative: no option
	token token  // of a SYN that joins a connection; 0: it does not
	size  int    // of the IP packet, in bytes; 0: headers only
}

var tcpFlags = map[string]func(*layers.TCP){
	"fin": func(t *layers.TCP) { t.FIN = true },
	"syn": func(t *layers.TCP) { t.SYN = true },
	"rst": func(t *layers.TCP) { t.RST = true },
	"psh": func(t *layers.TCP) { t.PSH = true },
	"ack": func(t *layers.TCP) { t.ACK = true },
	"urg": func(t *layers.TCP) { t.URG = true },
	"ece": func(t *layers.TCP) { t.ECE = true },
	"cwr": func(t *layers.TCP) { t.CWR = true },
}

// frame builds the flow's packet, in an Ethernet frame as it might arrive.
func (d described) frame(flow model.Flow) ([]byte, error) {
	ethernet := &layers.Ethernet{
		SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2},
		EthernetType: layers.EthernetTypeIPv4,
	}
	source, destination := flow.Source.Addr().AsSlice(), flow.Destination.Addr().AsSlice()
	protocol := layers.IPProtocol(flow.Protocol)
	var ip interface {
		gopacket.SerializableLayer
		gopacket.NetworkLayer
	} = &layers.IPv4{
		Version: 4, TTL: 64, Flags: layers.IPv4DontFragment, Protocol: protocol, SrcIP: source, DstIP: destination,
	}
	length := 20
	if flow.Source.Addr().Is6() {
		ethernet.EthernetType = layers.EthernetTypeIPv6
		ip = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: protocol, SrcIP: source, DstIP: destination}
		length = 40
	}
	transport, transportLength, err := d.transport(flow, ip)
	if err != nil {
		return nil, err
	}
	length += transportLength
	if d.size != 0 && d.size < length {
		return nil, fmt.Errorf("read --size: the headers alone are of %d bytes, is %d", length, d.size)
	}
	buffer := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	payload := gopacket.Payload(make([]byte, max(d.size, length)-length))
	if err := gopacket.SerializeLayers(buffer, options, ethernet, ip, transport, payload); err != nil {
		return nil, fmt.Errorf("build the packet: %w", err)
	}
	return buffer.Bytes(), nil
}

// transport is the header behind ip, and its length.
func (d described) transport(flow model.Flow, ip gopacket.NetworkLayer) (gopacket.SerializableLayer, int, error) {
	if flow.Protocol == model.UDP {
		udp := &layers.UDP{SrcPort: layers.UDPPort(flow.Source.Port()), DstPort: layers.UDPPort(flow.Destination.Port())}
		return udp, 8, udp.SetNetworkLayerForChecksum(ip)
	}
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(flow.Source.Port()), DstPort: layers.TCPPort(flow.Destination.Port()),
		Seq: 1, Window: 65535,
	}
	for _, name := range strings.FieldsFunc(strings.ToLower(d.flags), func(r rune) bool { return r == '|' || r == ',' }) {
		set, known := tcpFlags[name]
		if !known {
			return nil, 0, fmt.Errorf("read --flags: must be of %s, joined by | or commas, is %q",
				strings.Join(slices.Sorted(maps.Keys(tcpFlags)), ", "), d.flags)
		}
		set(tcp)
	}
	length := 20
	if d.tsecr >= 0 {
		value := binary.BigEndian.AppendUint32(make([]byte, 4), uint32(d.tsecr))
		tcp.Options = []layers.TCPOption{
			{OptionType: layers.TCPOptionKindNop},
			{OptionType: layers.TCPOptionKindNop},
			{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: value},
		}
		length += 12
	}
	if d.token != 0 {
		if !tcp.SYN || tcp.ACK {
			return nil, 0, fmt.Errorf("read --token: it is in SYNs, and --flags is %q", d.flags)
		}
		tcp.Options = append(tcp.Options, joinOption(d.token))
		length += joinLength
	}
	return tcp, length, tcp.SetNetworkLayerForChecksum(ip)
}

// A SYN that joins a connection of Multipath TCP (RFC 8684, section 3.2).
const (
	subtypeJoin = 1
	joinLength  = 12
)

func joinOption(t token) layers.TCPOption {
	data := binary.BigEndian.AppendUint32([]byte{subtypeJoin << 4, 1}, uint32(t))
	return layers.TCPOption{OptionType: layers.TCPOptionKindMultipathTCP, OptionLength: joinLength, OptionData: append(data, 0, 0, 0, 1)}
}

// joinedBy is the token in the frame, if it is a SYN that joins a connection.
func joinedBy(frame []byte) (token, bool) {
	packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.DecodeOptions{Lazy: true, NoCopy: true})
	tcp, ok := packet.TransportLayer().(*layers.TCP)
	if !ok || !tcp.SYN || tcp.ACK {
		return 0, false
	}
	for _, option := range tcp.Options {
		if join := option.OptionMPTCPMpJoin; join != nil && option.OptionLength == joinLength {
			return token(join.ReceivToken), true
		}
	}
	return 0, false
}

// frameOfFile reads the numbered packet, from 1 on, of a pcap or pcapng file.
func frameOfFile(path string, number int) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read --pcap: %w", err)
	}
	defer file.Close()
	read, link, err := packetReader(file)
	if err != nil {
		return nil, fmt.Errorf("read --pcap %s: %w", path, err)
	}
	for i := 1; ; i++ {
		frame, info, err := read()
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil, fmt.Errorf("read --packet %d: %s has %d packets", number, path, i-1)
		case err != nil:
			return nil, fmt.Errorf("read --pcap %s: packet %d: %w", path, i, err)
		case i < number:
			continue
		case link() != layers.LinkTypeEthernet:
			return nil, fmt.Errorf("read --pcap %s: its packets are of %s, not of Ethernet", path, link())
		case info.CaptureLength < info.Length:
			return nil, fmt.Errorf("read --packet %d: only %d of its %d bytes were captured: capture whole packets",
				number, info.CaptureLength, info.Length)
		}
		return frame, nil
	}
}

type readPacket func() ([]byte, gopacket.CaptureInfo, error)

func packetReader(file io.ReadSeeker) (readPacket, func() layers.LinkType, error) {
	ng, err := pcapgo.NewNgReader(file, pcapgo.DefaultNgReaderOptions)
	if err == nil {
		return ng.ReadPacketData, ng.LinkType, nil
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, nil, err
	}
	old, err := pcapgo.NewReader(file)
	if err != nil {
		return nil, nil, errors.New("it is neither pcap nor pcapng")
	}
	return old.ReadPacketData, old.LinkType, nil
}

// describeFrame reads a frame's ends for a line of text: "TCP 198.51.100.7:40000 → 203.0.113.10:80", or what
// it is else.
func describeFrame(frame []byte) string {
	packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.DecodeOptions{Lazy: true, NoCopy: true})
	network := packet.NetworkLayer()
	if network == nil {
		return fmt.Sprintf("a frame of %d bytes that is not IP", len(frame))
	}
	from, _ := netip.AddrFromSlice(network.NetworkFlow().Src().Raw())
	to, _ := netip.AddrFromSlice(network.NetworkFlow().Dst().Raw())
	switch t := packet.TransportLayer().(type) {
	case *layers.TCP:
		return flowText(model.TCP, from, to, uint16(t.SrcPort), uint16(t.DstPort))
	case *layers.UDP:
		return flowText(model.UDP, from, to, uint16(t.SrcPort), uint16(t.DstPort))
	}
	return fmt.Sprintf("a packet from %s to %s", from, to)
}

func flowText(protocol model.Protocol, from, to netip.Addr, fromPort, toPort uint16) string {
	return model.Flow{
		Protocol: protocol, Source: netip.AddrPortFrom(from, fromPort), Destination: netip.AddrPortFrom(to, toPort),
	}.String()
}
