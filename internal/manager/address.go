package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/manager/pki"
)

// joinTimeout bounds how long a manager tries to join a cluster.
const joinTimeout = time.Minute

// advertise is the address at which the other managers reach this one's API: as it was told, or where it
// listens, which may be all addresses; then it is the one where it listens for them.
func advertise(cfg Config, listens string) string {
	host, port, err := net.SplitHostPort(listens)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		if peer, _, err := net.SplitHostPort(cfg.PeerListen); err == nil {
			listens = net.JoinHostPort(peer, port)
		}
	}
	return cmp.Or(cfg.Advertise, listens)
}

// reachable is the address to write into a configuration for one that is advertised.
func reachable(advertised string) string {
	host, port, err := net.SplitHostPort(advertised)
	if err != nil {
		return advertised
	}
	if a, err := netip.ParseAddr(host); err == nil && a.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// joining asks the managers to join for a place; nil if this one founds a cluster.
func joining(cfg Config, identity *pki.Identity, address string) func(context.Context, string) ([]etcd.Member, error) {
	if cfg.Join == "" {
		return nil
	}
	return func(ctx context.Context, peerURL string) ([]etcd.Member, error) {
		client, err := identity.ToJoin(cfg.Join).Client()
		if err != nil {
			return nil, err
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(ctx, joinTimeout)
		defer cancel()
		r, err := client.JoinManager(ctx, &weirv1.JoinManagerRequest{
			Name: cfg.Name, Address: address, PeerUrl: peerURL, Version: cfg.Version,
		})
		if err != nil {
			return nil, err
		}
		var members []etcd.Member
		for _, m := range r.GetMembers() {
			members = append(members, etcd.Member{Name: m.GetName(), PeerURL: m.GetPeerUrl()})
		}
		return members, nil
	}
}

// listen takes the address of the API.
func listen(ctx context.Context, address string) (*net.TCPListener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	switch tcp, ok := listener.(*net.TCPListener); {
	case ok:
		return tcp, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("listen on %s: another program does: stop it, or choose another address with --listen", address)
	default:
		return nil, fmt.Errorf("listen on %s: %w: choose another address with --listen", address, err)
	}
}
