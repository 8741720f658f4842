package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// SchemeError says that a manager has TLS and is called without, or the other way round, and what to do.
type SchemeError struct {
	Address string // host:port
	TLS     bool   // the manager has it
}

func (e *SchemeError) Error() string {
	if e.TLS {
		return fmt.Sprintf("the manager at %s speaks TLS only: write https://%[1]s, and prove who you are: nodes join with --token-file and --ca-hash, "+
			"as weir token create prints them, users name a configuration with --config or the variable %[2]s", e.Address, ConfigVariable)
	}
	return fmt.Sprintf("the manager at %s speaks no TLS, it runs with --insecure: start it without, or write http://%[1]s", e.Address)
}

// probeTime bounds the question whether a manager has TLS.
const probeTime = 2 * time.Second

// wantsTLS is a *SchemeError if a request without TLS to the manager that was dialled last failed with err because
// that one has TLS, else err.
func (d *dialer) wantsTLS(ctx context.Context, err error) error {
	d.mu.Lock()
	address := d.last
	d.mu.Unlock()
	if address == "" || errors.As(err, new(*UnreachableError)) || ctx.Err() != nil {
		return err
	}
	// A server that waits for TLS hangs up without a word.
	prober := &tls.Dialer{
		NetDialer: &net.Dialer{Timeout: probeTime},
		Config:    &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}, //nolint:gosec // nothing is said
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	conn, refused := prober.DialContext(ctx, "tcp", address)
	if refused != nil {
		return err
	}
	conn.Close()
	return &SchemeError{Address: address, TLS: true}
}
