package fastpath

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/weirlb/weir/internal/model"
)

// Kind is what a message says.
type Kind uint8

// The kinds.
const (
	Redirect Kind = 1 // by a mux: this connection may go direct, between these tunnels
	Ready    Kind = 2 // by a host: I take its packets from you; you may send
	Gone     Kind = 3 // by a host: I know nothing of it; send to the muxes
)

// String is the word that operators see: "redirect".
func (k Kind) String() string {
	switch k {
	case Redirect:
		return "redirect"
	case Ready:
		return "ready"
	case Gone:
		return "gone"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Connection is one as it is on the wire between two VIPs.
type Connection struct {
	Protocol       model.Protocol
	Client, Server netip.AddrPort
}

// String is "TCP 203.0.113.20:1024 → 203.0.113.10:80".
func (c Connection) String() string {
	return fmt.Sprintf("%s %s → %s", c.Protocol, c.Client, c.Server)
}

// Message is what a mux or a host says of a connection.
type Message struct {
	Kind       Kind
	Connection Connection
	// Tunnels of the hosts at both ends, of one family.
	Client, Server netip.Addr
	// Want asks for the same message back: the sender may not send to the receiver yet.
	Want bool
	// ToClient says which end the message is for.
	ToClient bool
	// Nonce tells two messages of one connection apart.
	Nonce   uint64
	Expires time.Time // to the millisecond
}

// Bounds of a message's time. Skew is how far clocks may be apart.
const (
	Lifetime = 5 * time.Second
	Skew     = 10 * time.Second
)

// Size is how many bytes a sealed message has.
const Size = 112

// Where the parts stand. All numbers are in network order.
const (
	atVersion  = 0
	atKind     = 1
	atProtocol = 2
	atFlags    = 3
	atKey      = 4
	atExpires  = 8 // in milliseconds since 1970
	atClient   = 16
	atServer   = 32
	atPorts    = 48
	atReserved = 52
	atTunnels  = 56
	atNonce    = 88
	atMAC      = 96
)

const (
	version      = 1
	flagWant     = 1
	flagToClient = 2
)

// Why a message is refused.
var (
	ErrMalformed = errors.New("malformed")
	ErrForged    = errors.New("forged")
	ErrKey       = errors.New("of a key that is not valid")
	ErrExpired   = errors.New("expired")
	ErrReplayed  = errors.New("replayed")
)

// Seal returns the bytes of m, signed with key.
func Seal(m Message, key model.FastpathKey) []byte {
	b := make([]byte, Size)
	b[atVersion], b[atKind], b[atProtocol] = version, byte(m.Kind), byte(m.Connection.Protocol)
	if m.Want {
		b[atFlags] |= flagWant
	}
	if m.ToClient {
		b[atFlags] |= flagToClient
	}
	binary.BigEndian.PutUint32(b[atKey:], key.ID)
	binary.BigEndian.PutUint64(b[atExpires:], uint64(m.Expires.UnixMilli()))
	putAddress(b[atClient:], m.Connection.Client.Addr())
	putAddress(b[atServer:], m.Connection.Server.Addr())
	binary.BigEndian.PutUint16(b[atPorts:], m.Connection.Client.Port())
	binary.BigEndian.PutUint16(b[atPorts+2:], m.Connection.Server.Port())
	putAddress(b[atTunnels:], m.Client)
	putAddress(b[atTunnels+16:], m.Server)
	binary.BigEndian.PutUint64(b[atNonce:], m.Nonce)
	copy(b[atMAC:], mac(b[:atMAC], key))
	return b
}

// mac is HMAC-SHA256, cut to 16 bytes (RFC 2104, section 5).
func mac(data []byte, key model.FastpathKey) []byte {
	h := hmac.New(sha256.New, key.Secret[:])
	h.Write(data)
	return h.Sum(nil)[:Size-atMAC]
}

func putAddress(to []byte, a netip.Addr) {
	bytes := a.As16()
	copy(to, bytes[:])
}

func address(from []byte) netip.Addr { return netip.AddrFrom16([16]byte(from[:16])).Unmap() }

// Open reads a message that one of keys has signed. It does not say whether it is valid now: see Guard.
func Open(b []byte, keys []model.FastpathKey) (Message, error) {
	if len(b) != Size || b[atVersion] != version {
		return Message{}, ErrMalformed
	}
	id := binary.BigEndian.Uint32(b[atKey:])
	for _, key := range keys {
		if key.ID != id {
			continue
		}
		if !hmac.Equal(mac(b[:atMAC], key), b[atMAC:]) {
			return Message{}, ErrForged
		}
		return read(b)
	}
	return Message{}, ErrKey
}

// read reads a message whose MAC is right.
func read(b []byte) (Message, error) {
	m := Message{
		Kind: Kind(b[atKind]), Want: b[atFlags]&flagWant != 0, ToClient: b[atFlags]&flagToClient != 0,
		Connection: Connection{
			Protocol: model.Protocol(b[atProtocol]),
			Client:   netip.AddrPortFrom(address(b[atClient:]), binary.BigEndian.Uint16(b[atPorts:])),
			Server:   netip.AddrPortFrom(address(b[atServer:]), binary.BigEndian.Uint16(b[atPorts+2:])),
		},
		Client: address(b[atTunnels:]), Server: address(b[atTunnels+16:]),
		Nonce:   binary.BigEndian.Uint64(b[atNonce:]),
		Expires: time.UnixMilli(int64(binary.BigEndian.Uint64(b[atExpires:]))),
	}
	c := m.Connection
	switch {
	case m.Kind < Redirect || m.Kind > Gone,
		c.Protocol != model.TCP && c.Protocol != model.UDP,
		c.Client.Addr().Is4() != c.Server.Addr().Is4(),
		m.Client.Is4() != m.Server.Is4(),
		b[atFlags]&^(flagWant|flagToClient) != 0,
		binary.BigEndian.Uint32(b[atReserved:]) != 0:
		return Message{}, ErrMalformed
	}
	return m, nil
}

// Own is the tunnel at the end that m is for, Peer the other one.
func (m Message) Own() netip.Addr {
	if m.ToClient {
		return m.Client
	}
	return m.Server
}

// Peer is the tunnel at the other end of the one that m is for.
func (m Message) Peer() netip.Addr {
	if m.ToClient {
		return m.Server
	}
	return m.Client
}
