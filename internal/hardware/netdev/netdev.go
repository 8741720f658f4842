// Package netdev reads the ports of a switch that is a Linux machine: its Ethernet interfaces by netlink, and what is at
// their other ends by lldpd, where that runs.
package netdev

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	vnl "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/hardware"
)

const (
	callTime = 2 * time.Second
	attempts = 10 // of a dump that changed meanwhile
)

// Ethtool's netlink family (linux/ethtool_netlink.h), which x/sys has no names for.
const (
	ethtoolVersion = 1
	getLinkModes   = 4
	modesHeader    = 1
	modesSpeed     = 5
	headerIndex    = 1
	speedUnknown   = 1<<32 - 1
	attributeType  = 0x3fff // without flags
)

// Config says which ports are read.
type Config struct {
	Names []string // interfaces; none: all Ethernet ones
	LLDP  string   // socket of lldpd; empty, or not there: no neighbour is heard
}

// Reader reads the ports of the network namespace that Open was called in.
type Reader struct {
	names   []string
	links   *vnl.Handle
	generic *nl.NetlinkSocket
	ethtool uint16 // number of the family; 0: the kernel has none
	lldp    lldp
}

// Open opens a reader.
func Open(config Config) (*Reader, error) {
	links, err := vnl.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	generic, err := nl.Subscribe(unix.NETLINK_GENERIC)
	if err != nil {
		links.Close()
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	r := &Reader{names: config.Names, links: links, generic: generic, lldp: lldp{socket: config.LLDP}}
	timeout := unix.NsecToTimeval(int64(callTime))
	err = errors.Join(links.SetSocketTimeout(callTime), generic.SetReceiveTimeout(&timeout), generic.SetSendTimeout(&timeout))
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("set up netlink socket: %w", err)
	}
	if family, err := links.GenlFamilyGet("ethtool"); err == nil {
		r.ethtool = family.ID
	}
	return r, nil
}

// Close closes the reader.
func (r *Reader) Close() {
	r.links.Close()
	r.generic.Close()
}

// IsPort says whether an interface is one that Ethernet frames come and go by.
func IsPort(link vnl.Link) bool {
	a := link.Attrs()
	return link.Type() == "veth" || link.Type() == "device" && len(a.HardwareAddr) == 6 && a.RawFlags&unix.IFF_LOOPBACK == 0
}

// Ports reads the ports, for a hardware.Driver that has the Reader in it.
func (r *Reader) Ports(ctx context.Context) (hardware.Ports, error) {
	if err := ctx.Err(); err != nil {
		return hardware.Ports{}, err
	}
	// Neighbours first: LLDP forgets them when a link goes down, which must be seen then.
	neighbours, warning := r.lldp.neighbours(ctx, time.Now())
	if err := ctx.Err(); err != nil {
		return hardware.Ports{}, err
	}
	links, err := r.list()
	if err != nil {
		return hardware.Ports{}, err
	}
	speeds, err := r.speeds()
	if err != nil {
		return hardware.Ports{}, err
	}
	var all []hardware.Port
	for _, link := range links {
		a := link.Attrs()
		if len(r.names) == 0 && !IsPort(link) || len(r.names) > 0 && !slices.Contains(r.names, a.Name) {
			continue
		}
		p := hardware.Port{Name: a.Name, Up: a.RawFlags&unix.IFF_RUNNING != 0, MbitPerS: speeds[a.Index]}
		if s := a.Statistics; s != nil {
			p.Received, p.Sent = s.RxBytes, s.TxBytes
			// RxDropped has frames of protocols in it that nobody here speaks, as others' LLDP.
			p.Errors = s.RxErrors + s.TxErrors + s.RxMissedErrors + s.TxDropped
		}
		p.Neighbour, p.NeighbourPort = neighbours[a.Name].system, neighbours[a.Name].port
		all = append(all, p)
	}
	if warning != "" {
		return hardware.NewPorts(all, warning), nil
	}
	return hardware.NewPorts(all), nil
}

func (r *Reader) list() ([]vnl.Link, error) { return Links(r.links) }

// Links lists the interfaces. While others come and go it is tried a few times.
func Links(handle *vnl.Handle) (links []vnl.Link, err error) {
	for range attempts {
		if links, err = handle.LinkList(); !errors.Is(err, vnl.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	return links, nil
}

// speeds are those of interfaces in Mbit/s, by index.
func (r *Reader) speeds() (map[int]uint64, error) {
	if r.ethtool == 0 {
		return nil, nil
	}
	request := nl.NewNetlinkRequest(int(r.ethtool), unix.NLM_F_DUMP)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_GENERIC: {Socket: r.generic}}
	request.AddData(&nl.Genlmsg{Command: getLinkModes, Version: ethtoolVersion})
	answers, err := request.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) {
		return nil, fmt.Errorf("read the speeds of interfaces: %w", err)
	}
	all := make(map[int]uint64, len(answers))
	for _, answer := range answers {
		if index, speed := parseModes(answer); speed != speedUnknown {
			all[index] = uint64(speed)
		}
	}
	return all, nil
}

// parseModes returns an interface's index and its speed, as far as the message has them.
func parseModes(message []byte) (index int, speed uint32) {
	if len(message) < nl.SizeofGenlmsg {
		return 0, speedUnknown
	}
	speed = speedUnknown
	attributes, err := nl.ParseRouteAttr(message[nl.SizeofGenlmsg:])
	if err != nil {
		return 0, speedUnknown
	}
	for _, a := range attributes {
		switch a.Attr.Type & attributeType {
		case modesHeader:
			inner, err := nl.ParseRouteAttr(a.Value)
			if err != nil {
				return 0, speedUnknown
			}
			for _, b := range inner {
				if b.Attr.Type&attributeType == headerIndex && len(b.Value) == 4 {
					index = int(binary.NativeEndian.Uint32(b.Value))
				}
			}
		case modesSpeed:
			if len(a.Value) == 4 {
				speed = binary.NativeEndian.Uint32(a.Value)
			}
		}
	}
	return index, speed
}
