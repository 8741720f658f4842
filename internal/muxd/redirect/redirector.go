// Package redirect tells hosts which connections between VIPs may leave the muxes (docs/design/fastpath.md).
package redirect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/fastpath"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/telemetry"
	"github.com/weirlb/weir/internal/wire"
)

// Redirector sends Fastpath redirects to the hosts at both ends of a connection. The mux knows both: the server's from
// the endpoint's table, the client's from the port ranges of its VIP.
type Redirector struct {
	log *slog.Logger
	now func() time.Time

	mu       sync.Mutex
	keys     []model.FastpathKey
	fastpath map[model.EndpointKey]*model.Fastpath // of the endpoints that have one

	sent, stays, failed atomic.Uint64 // redirects; connections that stay; redirects that could not be sent
}

// New returns a redirector without tables.
func New(log *slog.Logger) *Redirector {
	return &Redirector{log: log, now: time.Now, fastpath: map[model.EndpointKey]*model.Fastpath{}}
}

// Update applies an update of the tables.
func (r *Redirector) Update(u wire.MuxUpdate) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = u.Keys
	if u.Snapshot {
		clear(r.fastpath)
	}
	for _, e := range u.Endpoints {
		delete(r.fastpath, e.Key)
		if e.Fastpath != nil {
			r.fastpath[e.Key] = e.Fastpath
		}
	}
	for _, key := range u.Removed {
		delete(r.fastpath, key)
	}
}

// redirects returns the messages to the tunnels at both ends; none if the connection stays with the muxes.
func (r *Redirector) redirects(c mux.Redirect) map[netip.Addr][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := model.EndpointKey{
		VIP: c.Connection.Server.Addr(), Protocol: c.Connection.Protocol, Port: c.Connection.Server.Port(),
	}
	rules := r.fastpath[key]
	if rules == nil {
		key.Port = model.AllPorts
		rules = r.fastpath[key]
	}
	if len(r.keys) == 0 || !rules.Takes(c.Connection.Client.Addr()) || c.Client.Is4() != c.Server.Is4() ||
		c.Client == c.Server {
		return nil
	}
	m := fastpath.Message{
		Kind: fastpath.Redirect, Connection: c.Connection, Client: c.Client, Server: c.Server,
		Nonce: rand.Uint64(), Expires: r.now().Add(fastpath.Lifetime),
	}
	messages := map[netip.Addr][]byte{c.Server: fastpath.Datagram(fastpath.Seal(m, r.keys[0]))}
	m.ToClient = true
	messages[c.Client] = fastpath.Datagram(fastpath.Seal(m, r.keys[0]))
	return messages
}

// redirectReader reads connections that are candidates for Fastpath.
type redirectReader interface {
	Read() (mux.Redirect, error)
	Close() error
}

// Run sends redirects for the connections of reader, from the addresses of the mux, until ctx ends.
func (r *Redirector) Run(ctx context.Context, reader redirectReader, source4, source6 netip.Addr) error {
	sockets := map[bool]*net.UDPConn{}
	for _, source := range []netip.Addr{source4, source6} {
		if !source.IsValid() {
			continue
		}
		socket, err := listen(ctx, source)
		if err != nil {
			return errors.Join(fmt.Errorf("open a socket for fastpath: %w", err), reader.Close())
		}
		defer socket.Close()
		sockets[source.Is4()] = socket
	}
	stop := context.AfterFunc(ctx, func() { reader.Close() })
	defer stop()
	for {
		connection, err := reader.Read()
		if errors.Is(err, fs.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		r.send(sockets, r.redirects(connection))
	}
}

// listen opens a socket at an address, which the machine may not have yet: one of IPv6 is tentative at first. The VIPs
// without Fastpath do not wait for it.
func listen(ctx context.Context, source netip.Addr) (*net.UDPConn, error) {
	level, option := unix.IPPROTO_IP, unix.IP_FREEBIND
	if source.Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_FREEBIND
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) }), err)
	}}
	socket, err := config.ListenPacket(ctx, "udp", netip.AddrPortFrom(source, 0).String())
	if err != nil {
		return nil, err
	}
	return socket.(*net.UDPConn), nil //nolint:forcetypeassert // package net makes no other for udp
}

// send sends sealed messages. A lost one is sent again while the mux sees packets of the connection.
func (r *Redirector) send(sockets map[bool]*net.UDPConn, messages map[netip.Addr][]byte) {
	if len(messages) == 0 {
		r.stays.Add(1)
	}
	for tunnel, datagram := range messages {
		socket := sockets[tunnel.Is4()]
		if socket == nil {
			r.failed.Add(1)
			continue
		}
		if _, err := socket.WriteToUDPAddrPort(datagram, netip.AddrPortFrom(tunnel, fastpath.Port)); err != nil {
			r.failed.Add(1)
			r.log.Debug("can't send to a host", "peer", tunnel.String(), "err", err)
			continue
		}
		r.sent.Add(1)
	}
}

// Sample puts the metrics of redirects, if any VIP has Fastpath.
func (r *Redirector) Sample(to *telemetry.Sample) {
	if r == nil {
		return
	}
	telemetry.Put(to, "weir_mux_redirects_total", r.sent.Load(), "sent")
	telemetry.Put(to, "weir_mux_redirects_total", r.stays.Load(), "stays")
	telemetry.Put(to, "weir_mux_redirects_total", r.failed.Load(), "failed")
}
