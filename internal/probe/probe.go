package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weirlb/weir/internal/model"
)

// reasonLimit bounds the part of a reason that quotes a backend, in characters.
const reasonLimit = 120

// Run checks the backend once and returns why it failed, or nil. It takes at most the check's
// timeout. A backend without a check succeeds.
func Run(ctx context.Context, backend model.HostBackend) error {
	check := backend.HealthCheck
	if check == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, check.Timeout)
	defer cancel()
	target := target(backend)
	if check.Type == model.CheckUDP {
		if err := exchange(ctx, target, check); err != nil {
			return fmt.Errorf("send to %s: %w", target, reason(err, check.Timeout))
		}
		return nil
	}
	conn, err := connect(ctx, target)
	if err != nil {
		return fmt.Errorf("connect %s: %w", target, reason(err, check.Timeout))
	}
	defer conn.Close()
	if check.Type == model.CheckTCP {
		return nil
	}
	defer endWith(ctx, conn)()
	over := conn
	if check.TLS.On {
		if over, err = startTLS(ctx, conn, backend, protocolOf(check)); err != nil {
			return fmt.Errorf("TLS with %s: %w", target, reason(err, check.Timeout))
		}
	}
	step := "GET " + check.Path
	if check.Type == model.CheckGRPC {
		step = askedService(check)
		err = askHealth(over, check.Service, hostHeader(backend), check.TLS.On)
	} else {
		err = get(over, target, check.Path, hostHeader(backend))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", step, reason(err, check.Timeout))
	}
	return nil
}

// endWith has reads and writes of conn fail when ctx ends, until stop is called.
func endWith(ctx context.Context, conn net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
}

// protocolOf is what a check speaks inside of TLS, by its name in ALPN.
func protocolOf(check *model.HealthCheck) string {
	if check.Type == model.CheckGRPC {
		return "h2"
	}
	return "http/1.1"
}

// target is the address that is connected to.
func target(backend model.HostBackend) netip.AddrPort {
	if port := backend.HealthCheck.Port; port != 0 {
		return netip.AddrPortFrom(backend.Backend.Addr(), port)
	}
	return backend.Backend
}

// hostHeader is the check's own, or the VIP's address as a URL writes it.
func hostHeader(backend model.HostBackend) string {
	if host := backend.HealthCheck.Host; host != "" {
		return host
	}
	vip := backend.Endpoint.VIP
	if vip.Is6() {
		return "[" + vip.String() + "]"
	}
	return vip.String()
}

func connect(ctx context.Context, target netip.AddrPort) (net.Conn, error) {
	dialer := net.Dialer{KeepAlive: -1}
	return dialer.DialContext(ctx, "tcp", target.String())
}

// reason strips from an error of net what its reader knows already.
func reason(err error, timeout time.Duration) error {
	var errno syscall.Errno
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return fmt.Errorf("timed out after %s", timeout)
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("connection closed before the answer was whole")
	}
	return errors.New(presentable(err.Error()))
}

// presentable is text that may quote what a backend sent: cut, and without bytes that a terminal
// or a message to the manager can't take.
func presentable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	if runes := []rune(text); len(runes) > reasonLimit {
		return string(runes[:reasonLimit]) + "..."
	}
	return text
}

// isTimeout covers the connect that the kernel or the dialer's own deadline gave up.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
