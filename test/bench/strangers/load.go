package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Bounds of each connection of the bench.
const (
	clientsAtOnce = 64
	silentAtOnce  = 2000
	connectionEnd = 8 * time.Second
	maxAnswer     = 1 << 20
)

// load sends requests of a class, from so many addresses.
type load struct {
	class   class
	to      string
	sources int

	mu      sync.Mutex
	next    int
	limit   int // 0: none
	answers map[string]int
}

// send returns when limit requests are answered, or ctx ended.
func (l *load) send(ctx context.Context) {
	var clients sync.WaitGroup
	n := clientsAtOnce
	if l.class.silent {
		n = silentAtOnce
	}
	for i := range n {
		clients.Go(func() {
			for {
				number, ok := l.take()
				if !ok || ctx.Err() != nil {
					return
				}
				l.note(l.request(ctx, i, number))
			}
		})
	}
	clients.Wait()
}

func (l *load) take() (number int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit > 0 && l.next >= l.limit {
		return 0, false
	}
	l.next += l.class.requests()
	return l.next, true
}

func (l *load) note(answer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[answer]++
}

// source is the address of a request.
func (l *load) source(number int) net.Addr {
	if l.sources == 1 {
		return &net.TCPAddr{IP: net.IPv4(127, 1, 0, 0)} // not the admin's
	}
	at := number / l.class.requests() % l.sources
	return &net.TCPAddr{IP: net.IPv4(127, 1, byte(at/200), byte(at%200+1))}
}

// request makes one connection, says what the class says, and returns in a word how it ended.
func (l *load) request(ctx context.Context, client, number int) string {
	dialer := net.Dialer{LocalAddr: l.source(number), Timeout: connectionEnd}
	conn, err := dialer.DialContext(ctx, "tcp", l.to)
	if err != nil {
		return "no connection"
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	end := connectionEnd
	if l.class.hold > 0 {
		end = l.class.hold
	}
	conn.SetDeadline(time.Now().Add(end)) //nolint:errcheck // what follows tells
	if l.class.bare {
		conn.Write(l.class.text) //nolint:errcheck // what is read tells
		return answerOf(conn)
	}
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}} //nolint:gosec // the manager is under test, on loopback
	if l.class.http2 != nil {
		config.NextProtos = []string{"h2"}
	}
	if l.class.certificates != nil {
		config.Certificates = l.class.certificates[client%len(l.class.certificates)]
	}
	secured := tls.Client(conn, config)
	if err := secured.Handshake(); err != nil { //nolint:noctx // the deadline bounds it
		return "handshake: " + reasonOf(err)
	}
	if l.class.http2 != nil {
		return l.class.http2(secured)
	}
	secured.Write(l.class.text) //nolint:errcheck // what is read tells
	if l.class.hold == 0 && l.class.text == nil {
		secured.CloseWrite() //nolint:errcheck // what is read tells
	}
	return answerOf(secured)
}

// answerOf reads until the manager hangs up, and returns the status.
func answerOf(conn net.Conn) string {
	text, err := io.ReadAll(io.LimitReader(conn, maxAnswer))
	if line, _, ok := bytes.Cut(text, []byte("\r\n")); ok {
		return strings.TrimPrefix(string(line), "HTTP/1.1 ")
	}
	return reasonOf(err)
}

func reasonOf(err error) string {
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return "closed"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "held to the end"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case strings.HasPrefix(err.Error(), "remote error"):
		return err.Error()
	}
	return "failed"
}
