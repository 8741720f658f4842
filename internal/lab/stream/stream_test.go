package stream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/echo"
)

// server starts an echo on a free port.
func server(t *testing.T) netip.AddrPort {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := netip.MustParseAddrPort(listener.Addr().String())
	listener.Close()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- echo.Serve(ctx, echo.Config{Backend: "b1", Listen: []netip.AddrPort{address}}) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(time.Millisecond) {
		conn, err := net.Dial("tcp", address.String())
		if err == nil {
			conn.Close()
			return address
		}
	}
	t.Fatalf("nobody listens at %s", address)
	return address
}

// hold runs streams until what they have done is enough, or for a minute.
func hold(t *testing.T, config Config, enough func(Result) bool) Result {
	t.Helper()
	config.Ramp = 10 * time.Millisecond
	config.Interval = 10 * time.Millisecond
	r, err := newRun(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	reached := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return enough(r.result)
	}
	go func() {
		for ctx.Err() == nil && !reached() {
			time.Sleep(time.Millisecond)
		}
		stop()
	}()
	return r.until(ctx, func() {})
}

func broken(n int) func(Result) bool { return func(r Result) bool { return r.Broken == n } }

func TestStreamsLast(t *testing.T) {
	target := server(t)
	for _, network := range []Network{TCP, UDP} {
		r := hold(t, Config{Network: network, Target: target, Streams: 20, Size: 5000}, func(r Result) bool {
			return r.Opened == 20 && r.Blocks >= 100
		})
		if r.Opened != 20 || r.Broken != 0 || r.Blocks < 100 || r.Backends["b1"] != 20 {
			t.Errorf("%s: %+v", network, r)
		}
	}
}

// A server whose bytes are wrong, who goes, or who falls silent, breaks the stream.
func TestBreaksAreToldApart(t *testing.T) {
	for want, end := range map[string]func(net.Conn){
		"wrong bytes":          func(c net.Conn) { _, _ = c.Write(make([]byte, 256)) },
		"closed by the server": func(net.Conn) {},
		"reset":                func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) },
		"no answer":            func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			reader := bufio.NewReader(conn)
			if _, err := http.ReadRequest(reader); err != nil {
				return
			}
			fmt.Fprintf(conn, "HTTP/1.1 101 X\r\n%s: b7\r\n\r\n", echo.BackendHeader)
			_, _ = io.ReadFull(reader, make([]byte, 256))
			end(conn)
		}()
		r := hold(t, Config{
			Network: TCP, Target: netip.MustParseAddrPort(listener.Addr().String()), Streams: 1, Patience: 2 * time.Second,
		}, broken(1))
		if r.Broken != 1 || r.Breaks[0].Reason != want || r.Breaks[0].Backend != "b7" {
			t.Errorf("want %q: %+v", want, r)
		}
	}
}

func TestStreamThatNeverOpensIsBroken(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := netip.MustParseAddrPort(listener.Addr().String())
	listener.Close()
	for _, network := range []Network{TCP, UDP} {
		r := hold(t, Config{Network: network, Target: target, Streams: 2, Patience: 100 * time.Millisecond}, broken(2))
		reason := "open: refused"
		if network == UDP && r.Broken == 2 && r.Breaks[0].Reason == "open: no answer" {
			reason = "open: no answer" // the refusal was looked for too late
		}
		if r.Opened != 0 || r.Broken != 2 || r.Breaks[0].Reason != reason {
			t.Errorf("%s: %+v", network, r)
		}
	}
}

// flowServer answers the flow's datagrams, from a number on as told.
func flowServer(t *testing.T, from uint64, answer func(number uint64) string) netip.AddrPort {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { packets.Close() })
	go func() {
		buffer := make([]byte, 100)
		for {
			n, client, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			var number uint64
			if _, err := fmt.Sscanf(string(buffer[:n]), echo.FlowRequest, &number); err != nil {
				return
			}
			text := fmt.Sprintf(echo.FlowAnswer, "b1", number, echo.FlowKnown)
			if number >= from {
				text = answer(number)
			}
			_, _ = packets.WriteTo([]byte(text), client)
		}
	}()
	return netip.MustParseAddrPort(packets.LocalAddr().String())
}

func TestFlowsThatMoveAreBroken(t *testing.T) {
	for want, state := range map[string]string{"reached b2": echo.FlowKnown, "does not know": echo.FlowUnknown} {
		target := flowServer(t, 3, func(number uint64) string { return fmt.Sprintf(echo.FlowAnswer, "b2", number, state) })
		r := hold(t, Config{Network: UDP, Target: target, Streams: 1}, broken(1))
		if r.Broken != 1 || !strings.Contains(r.Breaks[0].Reason, want) || r.Breaks[0].Backend != "b1" {
			t.Errorf("want %q: %+v", want, r)
		}
	}
}

func TestLostDatagramsBreakNothing(t *testing.T) {
	target := flowServer(t, 2, func(number uint64) string {
		if number%2 == 0 {
			number-- // the answer of another
		}
		return fmt.Sprintf(echo.FlowAnswer, "b1", number, echo.FlowKnown)
	})
	r := hold(t, Config{Network: UDP, Target: target, Streams: 1}, func(r Result) bool { return r.Lost > 0 && r.Blocks > 0 })
	if r.Broken != 0 || r.Lost == 0 || r.Blocks == 0 {
		t.Errorf("%+v", r)
	}
}

func TestBadConfigurationIsRefused(t *testing.T) {
	target := netip.MustParseAddrPort("127.0.0.1:1")
	for _, config := range []Config{{Network: "sctp", Target: target, Streams: 1}, {Network: TCP, Streams: 1}, {Network: UDP, Target: target}} {
		if _, err := Run(t.Context(), config, func() {}); err == nil {
			t.Errorf("%+v was accepted", config)
		}
	}
}
