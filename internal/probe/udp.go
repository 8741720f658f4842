package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/healthcheck"
)

const (
	// datagramLimit bounds what is read of a datagram.
	datagramLimit = 4096
	// datagramsMost is how many datagrams are read: others may send some from the backend's address and port, too.
	datagramsMost = 16
)

// exchange sends a datagram and reads until one is the answer. A connected socket takes those of the target alone.
func exchange(ctx context.Context, target netip.AddrPort, check *model.HealthCheck) error {
	send, expect, err := payloads(check)
	if err != nil {
		return err
	}
	dialer := net.Dialer{Control: receiveErrors}
	conn, err := dialer.DialContext(ctx, "udp", target.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	defer endWith(ctx, conn)()
	if _, err := conn.Write(send); err != nil {
		return unreachable(err)
	}
	buffer := make([]byte, datagramLimit)
	answered := false
	for range datagramsMost {
		n, err := conn.Read(buffer)
		switch {
		case err == nil && bytes.Contains(buffer[:n], expect): // all have what is empty
			return nil
		case err == nil:
			answered = true
		case !isTimeout(err):
			return unreachable(err)
		case answered:
			return errors.New("the answer is not what is expected")
		case check.AnswerOptional && errors.Is(ctx.Err(), context.DeadlineExceeded):
			return nil
		default:
			return fmt.Errorf("no answer within %s", check.Timeout)
		}
	}
	return errors.New("the answer is not what is expected")
}

func payloads(check *model.HealthCheck) (send, expect []byte, err error) {
	send, reason := healthcheck.Payload(check.Send)
	expect, wrong := healthcheck.Payload(check.Expect)
	if reason += wrong; reason != "" {
		return nil, nil, errors.New("the check's payload " + reason)
	}
	return send, expect, nil
}

// receiveErrors has the kernel tell all ICMP errors of what the socket sends, not only those that it takes for lasting.
func receiveErrors(network, _ string, c syscall.RawConn) error {
	level, option := unix.IPPROTO_IP, unix.IP_RECVERR
	if network == "udp6" {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	var failed error
	err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), level, option, 1) })
	return errors.Join(err, failed)
}

// unreachable says what an ICMP error said: to a socket a port that nobody has refuses connections.
func unreachable(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return errors.New("port unreachable")
	}
	return err
}
