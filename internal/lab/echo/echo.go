package echo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Config says who answers, and where.
type Config struct {
	Backend string // name of the workload
	Host    string // name of its host
	Listen  []netip.AddrPort
}

// Answer is what a client gets.
type Answer struct {
	Backend string      `json:"backend"`
	Host    string      `json:"host"`
	Client  string      `json:"client"` // address and port that the server saw
	Server  string      `json:"server"` // address and port that the server was reached at
	Method  string      `json:"method"`
	Path    string      `json:"path"`
	Headers http.Header `json:"headers"`
}

// Received is what a client gets for an upload.
type Received struct {
	Backend string `json:"backend"`
	Size    int64  `json:"size"`
	SHA256  string `json:"sha256"`
}

// Headers of every answer of GET /, for clients that do not read the body. A server of another kind
// sets them too.
const (
	BackendHeader = "X-Backend"
	ClientHeader  = "X-Client" // the address alone
)

// readBuffer is what the kernel keeps for the UDP echo, if it allows so much.
const readBuffer = 4 << 20

// maxBytes bounds one answer of /bytes/N.
const maxBytes = 1 << 40

// Serve answers until ctx ends.
func Serve(ctx context.Context, config Config) error {
	if len(config.Listen) == 0 {
		return errors.New("serve echo: no address to listen on")
	}
	group, ctx := errgroup.WithContext(ctx)
	server := &http.Server{Handler: handler(config), ReadHeaderTimeout: 10 * time.Second}
	for _, address := range config.Listen {
		listener, err := net.Listen("tcp", address.String())
		if err != nil {
			return fmt.Errorf("serve echo: %w", err)
		}
		packets, err := net.ListenPacket("udp", address.String())
		if err != nil {
			return fmt.Errorf("serve echo: %w", errors.Join(err, listener.Close()))
		}
		// The default has room for few large datagrams: one that came in fragments takes a page for each.
		if err := packets.(*net.UDPConn).SetReadBuffer(readBuffer); err != nil {
			return fmt.Errorf("serve echo: %w", errors.Join(err, packets.Close(), listener.Close()))
		}
		group.Go(func() error {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve echo: %w", err)
			}
			return nil
		})
		group.Go(func() error { return answerPackets(packets, config.Backend) })
		context.AfterFunc(ctx, func() { packets.Close() })
	}
	group.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	return group.Wait()
}

func handler(config Config) http.Handler {
	var failing atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if failing.Load() {
			http.Error(w, "told to fail", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("POST /health/fail", func(http.ResponseWriter, *http.Request) { failing.Store(true) })
	mux.HandleFunc("POST /health/pass", func(http.ResponseWriter, *http.Request) { failing.Store(false) })
	mux.HandleFunc("GET /bytes/{size}", sendBytes)
	mux.HandleFunc("PUT /upload", func(w http.ResponseWriter, r *http.Request) { receive(w, r, config.Backend) })
	mux.HandleFunc("GET "+StreamPath, func(w http.ResponseWriter, r *http.Request) { stream(w, r, config.Backend) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		answer := Answer{
			Backend: config.Backend, Host: config.Host, Client: r.RemoteAddr,
			Method: r.Method, Path: r.URL.Path, Headers: r.Header,
		}
		w.Header().Set(BackendHeader, config.Backend)
		if client, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
			w.Header().Set(ClientHeader, client.Addr().String())
		}
		if server, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
			answer.Server = server.String()
		}
		writeJSON(w, answer)
	})
	return mux
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(value) // fails if the client has gone: there is no one to tell
}

func sendBytes(w http.ResponseWriter, r *http.Request) {
	size, err := strconv.ParseInt(r.PathValue("size"), 10, 64)
	if err != nil || size < 0 || size > maxBytes {
		http.Error(w, "size must be a number of bytes", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	_, _ = io.CopyN(w, &Pattern{}, size) // fails if the client has gone
}

func receive(w http.ResponseWriter, r *http.Request, backend string) {
	hash := sha256.New()
	size, err := io.Copy(hash, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	writeJSON(w, Received{Backend: backend, Size: size, SHA256: hex.EncodeToString(hash.Sum(nil))})
}

func answerPackets(packets net.PacketConn, backend string) error {
	buffer := make([]byte, 64<<10)
	known := flows{}
	for {
		n, client, err := packets.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("serve echo: %w", err)
		}
		if answer, ok := known.answer(backend, client, buffer[:n]); ok {
			_, _ = packets.WriteTo(answer, client) // as below
			continue
		}
		// A client that has gone does not matter to the others.
		_, _ = packets.WriteTo(fmt.Appendf(nil, "%s %s %s", backend, client, buffer[:n]), client)
	}
}
