package linux

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// What x/sys does not have (linux/nexthop.h, linux/seg6_iptunnel.h).
const (
	nhaResGroup                = 12
	nhaResGroupBuckets         = 1
	nhaResGroupIdleTimer       = 2
	nhaResGroupUnbalanced      = 3
	groupTypeResilient         = 1
	rtaNextHopID               = 30
	seg6ModeEncapReduced       = 3
	seg6EncapBytes             = 4 + 8 + 16 // mode, header, one segment
	nextHopHeader              = 8
	groupMemberBytes           = 8
	ticksPerSecond             = 100 // USER_HZ
	attempts                   = 10  // of a dump that changed meanwhile
	callTime                   = 2 * time.Second
	protocol              byte = 87 // of our routes and next hops; nobody's in iproute2's rt_protos
)

// hop is a next hop that encapsulates.
type hop struct {
	v6     bool // for VIPs of IPv6
	tunnel netip.Addr
}

// member is a next hop in a group.
type member struct {
	id     uint32
	weight uint32
}

// object is a next hop or a group, as the kernel tells it.
type object struct {
	id       uint32
	protocol byte
	hop      hop
	isHop    bool     // of our form
	members  []member // of a group
	buckets  uint16
	device   uint32
}

// route is a route to a single address.
type route struct {
	to       netip.Addr
	protocol byte
	group    uint32
	metric   uint32
	kind     byte
	table    uint32
}

// kernel asks the kernel by its own sockets, so that they stay in the namespace where they were opened.
type kernel struct {
	sockets map[int]*nl.SocketHandle
	port    uint32 // of the socket that routes are written by: the kernel tells all who changed something
}

func openKernel() (*kernel, error) {
	k := &kernel{sockets: map[int]*nl.SocketHandle{}}
	for _, family := range []int{unix.NETLINK_ROUTE, unix.NETLINK_GENERIC} {
		s, err := nl.Subscribe(family)
		if err != nil {
			k.close()
			return nil, fmt.Errorf("open netlink socket: %w", err)
		}
		k.sockets[family] = &nl.SocketHandle{Socket: s}
		timeout := unix.NsecToTimeval(int64(callTime))
		err = errors.Join(s.SetSendTimeout(&timeout), s.SetReceiveTimeout(&timeout), s.SetExtAck(true))
		if family == unix.NETLINK_ROUTE { // the kernel filters dumps
			port, failed := s.GetPid()
			k.port = port
			err = errors.Join(err, failed, unix.SetsockoptInt(s.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1))
		}
		if err != nil {
			k.close()
			return nil, fmt.Errorf("set up netlink socket: %w", err)
		}
	}
	return k, nil
}

func (k *kernel) close() {
	for _, s := range k.sockets {
		s.Socket.Close()
	}
}

func (k *kernel) request(kind, flags int) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(kind, flags)
	r.Sockets = k.sockets
	return r
}

// execute sends a request and returns the answers.
func execute(ctx context.Context, r *nl.NetlinkRequest, answer uint16) ([][]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return r.Execute(unix.NETLINK_ROUTE, answer)
}

// dump repeats a dump until it is whole.
func dump(ctx context.Context, request func() *nl.NetlinkRequest, answer uint16) (all [][]byte, err error) {
	for range attempts {
		if all, err = execute(ctx, request(), answer); !errors.Is(err, nl.ErrDumpInterrupted) {
			return all, err
		}
	}
	return nil, err
}

func u32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
func u16(v uint16) []byte { return binary.NativeEndian.AppendUint16(nil, v) }

// nhmsg is the header of a message about next hops.
type nhmsg struct{ family byte }

func (nhmsg) Len() int { return nextHopHeader }

func (m nhmsg) Serialize() []byte { return []byte{m.family, 0, protocol, 0, 0, 0, 0, 0} }

// query is that of a question, which has no protocol.
type query struct{ nhmsg }

func (query) Serialize() []byte { return make([]byte, nextHopHeader) }

func family(v6 bool) byte {
	if v6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// addHop adds a next hop by an interface.
func (k *kernel) addHop(ctx context.Context, id uint32, h hop, device uint32) error {
	encapsulation, err := nl.EncodeSEG6Encap(seg6ModeEncapReduced, []net.IP{h.tunnel.AsSlice()})
	if err != nil {
		return fmt.Errorf("encode the encapsulation to %s: %w", h.tunnel, err)
	}
	r := k.request(unix.RTM_NEWNEXTHOP, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	r.AddData(nhmsg{family(h.v6)})
	r.AddData(nl.NewRtAttr(unix.NHA_ID, u32(id)))
	r.AddData(nl.NewRtAttr(unix.NHA_OIF, u32(device)))
	r.AddData(nl.NewRtAttr(unix.NHA_ENCAP_TYPE, u16(unix.LWTUNNEL_ENCAP_SEG6)))
	encap := nl.NewRtAttr(unix.NHA_ENCAP|unix.NLA_F_NESTED, nil)
	encap.AddRtAttr(nl.SEG6_IPTUNNEL_SRH, encapsulation)
	r.AddData(encap)
	if _, err := execute(ctx, r, 0); err != nil {
		return fmt.Errorf("add next hop %#x to %s: %w", id, h.tunnel, err)
	}
	return nil
}

// putGroup adds a group, or replaces the members of one, in one step. The number of buckets can't be changed.
func (k *kernel) putGroup(ctx context.Context, id uint32, members []member, buckets uint16, replace bool) error {
	flags := unix.NLM_F_CREATE | unix.NLM_F_ACK
	if replace {
		flags |= unix.NLM_F_REPLACE
	} else {
		flags |= unix.NLM_F_EXCL
	}
	var list []byte
	for _, m := range members {
		list = append(append(list, u32(m.id)...), byte(m.weight-1), byte((m.weight-1)>>8), 0, 0)
	}
	r := k.request(unix.RTM_NEWNEXTHOP, flags)
	r.AddData(nhmsg{unix.AF_UNSPEC})
	r.AddData(nl.NewRtAttr(unix.NHA_ID, u32(id)))
	r.AddData(nl.NewRtAttr(unix.NHA_GROUP, list))
	r.AddData(nl.NewRtAttr(unix.NHA_GROUP_TYPE, u16(groupTypeResilient)))
	resilient := nl.NewRtAttr(nhaResGroup|unix.NLA_F_NESTED, nil)
	resilient.AddRtAttr(nhaResGroupBuckets, u16(buckets))
	resilient.AddRtAttr(nhaResGroupIdleTimer, u32(idleTime*ticksPerSecond))
	resilient.AddRtAttr(nhaResGroupUnbalanced, u32(unbalancedTime*ticksPerSecond))
	r.AddData(resilient)
	if _, err := execute(ctx, r, 0); err != nil {
		return fmt.Errorf("write group %#x of %d next hops: %w", id, len(members), err)
	}
	return nil
}

// deleteObject deletes a next hop or a group. One that is not there is fine.
func (k *kernel) deleteObject(ctx context.Context, id uint32) error {
	r := k.request(unix.RTM_DELNEXTHOP, unix.NLM_F_ACK)
	r.AddData(query{})
	r.AddData(nl.NewRtAttr(unix.NHA_ID, u32(id)))
	if _, err := execute(ctx, r, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete next hop %#x: %w", id, err)
	}
	return nil
}

// getObject returns a next hop or a group, or nil.
func (k *kernel) getObject(ctx context.Context, id uint32) (*object, error) {
	r := k.request(unix.RTM_GETNEXTHOP, 0)
	r.AddData(query{})
	r.AddData(nl.NewRtAttr(unix.NHA_ID, u32(id)))
	answers, err := execute(ctx, r, unix.RTM_NEWNEXTHOP)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read next hop %#x: %w", id, err)
	case len(answers) != 1:
		return nil, fmt.Errorf("read next hop %#x: got %d answers", id, len(answers))
	}
	o, err := parseObject(answers[0])
	return &o, err
}

func (k *kernel) objects(ctx context.Context) ([]object, error) {
	answers, err := dump(ctx, func() *nl.NetlinkRequest {
		r := k.request(unix.RTM_GETNEXTHOP, unix.NLM_F_DUMP)
		r.AddData(query{})
		return r
	}, unix.RTM_NEWNEXTHOP)
	if err != nil {
		return nil, fmt.Errorf("read next hops: %w", err)
	}
	all := make([]object, 0, len(answers))
	for _, m := range answers {
		o, err := parseObject(m)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// attributeType is an attribute's without the flags.
const attributeType = 0x3fff

func parseObject(message []byte) (o object, err error) {
	if len(message) < nextHopHeader {
		return o, errors.New("a message about a next hop is too short")
	}
	attributes, err := nl.ParseRouteAttr(message[nextHopHeader:])
	if err != nil {
		return o, fmt.Errorf("parse a message about a next hop: %w", err)
	}
	o.protocol, o.hop.v6 = message[2], message[0] == unix.AF_INET6
	for _, a := range attributes {
		switch a.Attr.Type & attributeType {
		case unix.NHA_ID:
			o.id = number(a.Value)
		case unix.NHA_OIF:
			o.device = number(a.Value)
		case unix.NHA_GROUP:
			for list := a.Value; len(list) >= groupMemberBytes; list = list[groupMemberBytes:] {
				o.members = append(o.members, member{number(list[:4]), uint32(list[4]) + uint32(list[5])<<8 + 1})
			}
		case unix.NHA_ENCAP:
			o.hop.tunnel, o.isHop = parseEncapsulation(a.Value)
		case nhaResGroup:
			o.buckets = parseBuckets(a.Value)
		}
	}
	return o, nil
}

// number reads a number of two or four bytes; of others, which the kernel does not send, it is 0.
func number(b []byte) uint32 {
	switch len(b) {
	case 2:
		return uint32(binary.NativeEndian.Uint16(b))
	case 4:
		return binary.NativeEndian.Uint32(b)
	}
	return 0
}

func parseBuckets(value []byte) uint16 {
	attributes, err := nl.ParseRouteAttr(value)
	if err != nil {
		return 0
	}
	for _, a := range attributes {
		if a.Attr.Type&attributeType == nhaResGroupBuckets {
			return uint16(number(a.Value))
		}
	}
	return 0
}

// parseEncapsulation returns the only segment of a reduced encapsulation.
func parseEncapsulation(value []byte) (netip.Addr, bool) {
	attributes, err := nl.ParseRouteAttr(value)
	if err != nil {
		return netip.Addr{}, false
	}
	for _, a := range attributes {
		if a.Attr.Type&attributeType == nl.SEG6_IPTUNNEL_SRH && len(a.Value) == seg6EncapBytes && number(a.Value[:4]) == seg6ModeEncapReduced {
			return netip.AddrFrom16([16]byte(a.Value[seg6EncapBytes-16:])), true
		}
	}
	return netip.Addr{}, false
}
