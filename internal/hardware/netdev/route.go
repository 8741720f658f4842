package netdev

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Unreachable implements hardware.Router.
func (r *Reader) Unreachable(ctx context.Context, tunnels []netip.Addr) (none []netip.Addr, err error) {
	for _, tunnel := range tunnels {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		switch _, err := r.links.RouteGet(tunnel.AsSlice()); {
		case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), // unreachable, or none
			errors.Is(err, unix.EINVAL), errors.Is(err, unix.EACCES): // blackhole, prohibit
			none = append(none, tunnel)
		case err != nil:
			return nil, fmt.Errorf("look up the route to %s: %w", tunnel, err)
		}
	}
	return none, nil
}
