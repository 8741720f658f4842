package probe

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirlb/weir/internal/model"
)

// authority issues certificates.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t, key, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
}

// issue makes a certificate for names and addresses that ends after so long.
func (a *authority) issue(ends time.Duration, names ...string) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(ends)}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// secureServer is one of net/http that answers by handle, and says in names which it was asked for by SNI.
func secureServer(t *testing.T, address string, cert tls.Certificate, handle http.HandlerFunc) (at netip.AddrPort, names chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	names = make(chan string, 8)
	server := httptest.NewUnstartedServer(handle)
	server.Listener.Close()
	server.Listener = listener
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		names <- hello.ServerName
		return nil, nil
	}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return listener.Addr().(*net.TCPAddr).AddrPort(), names
}

func httpsCheck(at netip.AddrPort, secure model.CheckTLS) model.HostBackend {
	backend := httpCheck(at, ample)
	secure.On = true
	backend.HealthCheck.Type, backend.HealthCheck.TLS = model.CheckHTTPS, secure
	return backend
}

func TestHTTPS(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	fine := func(http.ResponseWriter, *http.Request) {}
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		at, names := secureServer(t, address, ours.issue(time.Hour, "shop.internal", "203.0.113.10"), fine)
		for _, c := range []struct {
			name      string
			tls       model.CheckTLS
			host, sni string
			want      string
		}{
			{name: "any certificate"},
			{name: "of ours, for the VIP", tls: model.CheckTLS{CA: ours.pem}},
			{name: "by name", tls: model.CheckTLS{CA: ours.pem, ServerName: "shop.internal"}, sni: "shop.internal"},
			{name: "by host", tls: model.CheckTLS{CA: ours.pem}, host: "shop.internal:8443", sni: "shop.internal"},
			{name: "a name that no one verifies", tls: model.CheckTLS{ServerName: "other.internal"}, sni: "other.internal"},
			{name: "of others", tls: model.CheckTLS{CA: theirs.pem}, want: "TLS with " + at.String() + ": the certificate is of an unknown authority"},
			{name: "of the system's", tls: model.CheckTLS{CA: model.SystemCA}, want: "TLS with " + at.String() + ": the certificate is of an unknown authority"},
			{name: "for another name", tls: model.CheckTLS{CA: ours.pem, ServerName: "other.internal"}, sni: "other.internal", want: "TLS with " + at.String() + ": the certificate is not for the name other.internal"},
			{name: "for another address", tls: model.CheckTLS{CA: ours.pem, ServerName: "203.0.113.11"}, want: "TLS with " + at.String() + ": the certificate is not for the address 203.0.113.11"},
		} {
			backend := httpsCheck(at, c.tls)
			backend.HealthCheck.Host = c.host
			t.Run(c.name, func(t *testing.T) {
				want(t, Run(t.Context(), backend), c.want)
				if got := <-names; got != c.sni {
					t.Errorf("asked for %q by SNI, want %q", got, c.sni)
				}
			})
		}
	}
	at, _ := secureServer(t, "127.0.0.1:0", ours.issue(-time.Hour, "shop.internal"), fine)
	want(t, Run(t.Context(), httpsCheck(at, model.CheckTLS{CA: ours.pem, ServerName: "shop.internal"})), "TLS with "+at.String()+": the certificate has expired, or is not valid yet")
	want(t, Run(t.Context(), httpsCheck(at, model.CheckTLS{})), "")
	at, _ = secureServer(t, "127.0.0.1:0", ours.issue(time.Hour), func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "shop.example" || r.RequestURI != "/healthz" || r.ProtoMajor != 1 {
			t.Errorf("asked for %s of %s by %s", r.RequestURI, r.Host, r.Proto)
		}
		http.Error(w, "no", http.StatusServiceUnavailable)
	})
	backend := httpsCheck(at, model.CheckTLS{})
	backend.HealthCheck.Host = "shop.example"
	want(t, Run(t.Context(), backend), "GET /healthz: status 503")
}

// A redirect is healthy, and is not followed.
func TestHTTPSFollowsNothing(t *testing.T) {
	asked := 0
	at, _ := secureServer(t, "127.0.0.1:0", newAuthority(t).issue(time.Hour), func(w http.ResponseWriter, r *http.Request) {
		asked++
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	})
	want(t, Run(t.Context(), httpsCheck(at, model.CheckTLS{})), "")
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

func TestNoTLSThere(t *testing.T) {
	at := serve(t, "127.0.0.1:0", func(conn *net.TCPConn) { _, _ = io.WriteString(conn, "SSH-2.0-OpenSSH_9.2\r\n"); hang(conn) })
	want(t, Run(t.Context(), httpsCheck(at, model.CheckTLS{})), "TLS with "+at.String()+": the server speaks no TLS")
	closed := closedPort(t)
	want(t, Run(t.Context(), httpsCheck(closed, model.CheckTLS{})), "connect "+closed.String()+": connection refused")
}

// Whether a server says nothing in its handshake, or never ends its answer, the check ends with its timeout.
func TestTLSEndsInTime(t *testing.T) {
	at := serve(t, "127.0.0.1:0", hang)
	silent := httpsCheck(at, model.CheckTLS{})
	silent.HealthCheck.Timeout = brief
	want(t, Run(t.Context(), silent), "TLS with "+at.String()+": timed out after 100ms")
	at, _ = secureServer(t, "127.0.0.1:0", newAuthority(t).issue(time.Hour), func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, "x")
			w.(http.Flusher).Flush()
		}
	})
	trickling := httpsCheck(at, model.CheckTLS{})
	trickling.HealthCheck.Timeout = 2 * time.Second // for the handshake; the answer ends at its bound
	want(t, Run(t.Context(), trickling), "")
}

// A server that sends records without content, or a header without an end, is not read for ever.
func TestTLSIsBounded(t *testing.T) {
	cert := newAuthority(t).issue(time.Hour)
	long := strings.Repeat("x", 2*answerLimit)
	at := serve(t, "127.0.0.1:0", func(conn *net.TCPConn) {
		secure := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{cert}})
		if secure.Handshake() == nil {
			_, _ = io.WriteString(secure, "HTTP/1.1 200 OK\r\nX: "+long)
			hang(conn)
		}
	})
	want(t, Run(t.Context(), httpsCheck(at, model.CheckTLS{})), "GET /healthz: answer's header is longer than 65536 bytes")
	at = serve(t, "127.0.0.1:0", func(conn *net.TCPConn) {
		record := []byte{22, 3, 3, 0x40, 0, 11, 0xff, 0xff, 0xff} // a handshake message of 16 MiB, in records of 16 KiB
		for {
			if _, err := conn.Write(append(record, make([]byte, 0x4000-4)...)); err != nil {
				return
			}
			record = []byte{22, 3, 3, 0x40, 0, 0, 0, 0, 0}
		}
	})
	if err := Run(t.Context(), httpsCheck(at, model.CheckTLS{})); err == nil || strings.Contains(err.Error(), "timed out") {
		t.Errorf("an endless handshake: %v", err)
	}
}

// healthServer is one of grpc-go, with the status of a service.
func healthServer(t *testing.T, address string, options ...grpc.ServerOption) (netip.AddrPort, *health.Server) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server, status := grpc.NewServer(options...), health.NewServer()
	healthpb.RegisterHealthServer(server, status)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return listener.Addr().(*net.TCPAddr).AddrPort(), status
}

func grpcCheck(at netip.AddrPort, service string) model.HostBackend {
	backend := tcpCheck(at, ample)
	backend.HealthCheck.Type, backend.HealthCheck.Service = model.CheckGRPC, service
	return backend
}

func TestGRPC(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		at, status := healthServer(t, address)
		want(t, Run(t.Context(), grpcCheck(at, "")), "")
		want(t, Run(t.Context(), grpcCheck(at, "shop.v1.Cart")), "Check of shop.v1.Cart: the server does not know the service")
		status.SetServingStatus("shop.v1.Cart", healthpb.HealthCheckResponse_SERVING)
		want(t, Run(t.Context(), grpcCheck(at, "shop.v1.Cart")), "")
		status.SetServingStatus("shop.v1.Cart", healthpb.HealthCheckResponse_NOT_SERVING)
		want(t, Run(t.Context(), grpcCheck(at, "shop.v1.Cart")), "Check of shop.v1.Cart: status NOT_SERVING")
		want(t, Run(t.Context(), grpcCheck(at, "")), "")
		status.Shutdown()
		want(t, Run(t.Context(), grpcCheck(at, "")), "Check: status NOT_SERVING")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bare := grpc.NewServer()
	done := make(chan struct{})
	go func() { defer close(done); _ = bare.Serve(listener) }()
	defer func() { bare.Stop(); <-done }()
	want(t, Run(t.Context(), grpcCheck(listener.Addr().(*net.TCPAddr).AddrPort(), "")), "Check: the server has no grpc.health.v1.Health")
}

func TestGRPCOverTLS(t *testing.T) {
	ours := newAuthority(t)
	cert := ours.issue(time.Hour, "cart.internal")
	at, status := healthServer(t, "127.0.0.1:0", grpc.Creds(credentials.NewServerTLSFromCert(&cert)))
	backend := grpcCheck(at, "")
	backend.HealthCheck.TLS = model.CheckTLS{On: true, CA: ours.pem, ServerName: "cart.internal"}
	want(t, Run(t.Context(), backend), "")
	status.Shutdown()
	want(t, Run(t.Context(), backend), "Check: status NOT_SERVING")
	backend.HealthCheck.TLS.ServerName = "other"
	want(t, Run(t.Context(), backend), "TLS with "+at.String()+": the certificate is not for the name other")
}

func TestGRPCSpokenByNobody(t *testing.T) {
	web := serve(t, "127.0.0.1:0", func(conn *net.TCPConn) { _, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n"); hang(conn) })
	if err := Run(t.Context(), grpcCheck(web, "")); err == nil || !strings.HasPrefix(err.Error(), "Check: ") || strings.Contains(err.Error(), "timed out") {
		t.Errorf("a server of HTTP/1: %v", err)
	}
	closing := serve(t, "127.0.0.1:0", func(*net.TCPConn) {})
	if err := Run(t.Context(), grpcCheck(closing, "")); err == nil {
		t.Error("a server that closes is healthy")
	}
	silent := grpcCheck(serve(t, "127.0.0.1:0", hang), "")
	silent.HealthCheck.Timeout = brief
	want(t, Run(t.Context(), silent), "Check: timed out after 100ms")
}

// Frames that say nothing, and messages without an end, are not read for ever.
func TestGRPCIsBounded(t *testing.T) {
	for name, frame := range map[string][]byte{
		"settings": {0, 0, 0, 4, 0, 0, 0, 0, 0},
		"pings":    {0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8},
		"data":     append([]byte{0, 0x20, 0, 0, 0, 0, 0, 0, 1}, make([]byte, 0x2000)...),
	} {
		at := serve(t, "127.0.0.1:0", func(conn *net.TCPConn) {
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			for {
				if _, err := conn.Write(frame); err != nil {
					return
				}
			}
		})
		if err := Run(t.Context(), grpcCheck(at, "")); err == nil || !strings.Contains(err.Error(), "longer than") {
			t.Errorf("%s for ever: %v", name, err)
		}
	}
}

// answerUDP answers each datagram by answer, until the test ends; nil is no answer.
func answerUDP(t *testing.T, address string, answer func([]byte) [][]byte) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			for _, datagram := range answer(buffer[:n]) {
				_, _ = conn.WriteTo(datagram, from)
			}
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

func udpCheck(at netip.AddrPort, timeout time.Duration, send, expect string) model.HostBackend {
	backend := tcpCheck(at, timeout)
	backend.HealthCheck.Type, backend.HealthCheck.Send, backend.HealthCheck.Expect = model.CheckUDP, send, expect
	return backend
}

func TestUDP(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		echo := answerUDP(t, address, func(b []byte) [][]byte { return [][]byte{b} })
		want(t, Run(t.Context(), udpCheck(echo, ample, "ping", "")), "")
		want(t, Run(t.Context(), udpCheck(echo, ample, "", "")), "")
		want(t, Run(t.Context(), udpCheck(echo, ample, "hex:00 ff 10", "hex:ff10")), "")
		want(t, Run(t.Context(), udpCheck(echo, brief, "ping", "pong")), "send to "+echo.String()+": the answer is not what is expected")
		// What comes first need not be the answer.
		late := answerUDP(t, address, func(b []byte) [][]byte { return [][]byte{{'x'}, b} })
		want(t, Run(t.Context(), udpCheck(late, ample, "ping", "ping")), "")
		mute := answerUDP(t, address, func([]byte) [][]byte { return nil })
		silent := udpCheck(mute, brief, "ping", "")
		want(t, Run(t.Context(), silent), "send to "+mute.String()+": no answer within 100ms")
		silent.HealthCheck.AnswerOptional = true
		want(t, Run(t.Context(), silent), "")

		socket, err := net.ListenPacket("udp", address) // a port that nobody has once it is closed
		if err != nil {
			t.Fatal(err)
		}
		gone := socket.LocalAddr().(*net.UDPAddr).AddrPort()
		socket.Close()
		closed := udpCheck(gone, ample, "ping", "")
		want(t, Run(t.Context(), closed), "send to "+gone.String()+": port unreachable")
		closed.HealthCheck.AnswerOptional = true
		want(t, Run(t.Context(), closed), "send to "+gone.String()+": port unreachable")
	}
}

// An optional answer that is wrong is wrong; one of nobody else's port is none.
func TestUDPAnswersOfOthers(t *testing.T) {
	wrong := answerUDP(t, "127.0.0.1:0", func([]byte) [][]byte { return [][]byte{[]byte("no")} })
	backend := udpCheck(wrong, brief, "ping", "yes")
	backend.HealthCheck.AnswerOptional = true
	want(t, Run(t.Context(), backend), "send to "+wrong.String()+": the answer is not what is expected")

	forger, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer forger.Close()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 64)
		if _, from, err := conn.ReadFrom(buffer); err == nil {
			_, _ = forger.WriteTo([]byte("yes"), from)
		}
	}()
	defer func() { conn.Close(); <-done }()
	at := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	want(t, Run(t.Context(), udpCheck(at, brief, "ping", "yes")), "send to "+at.String()+": no answer within 100ms")
}

// A flood of wrong datagrams ends the check, long before its timeout.
func TestUDPIsBounded(t *testing.T) {
	flood := answerUDP(t, "127.0.0.1:0", func([]byte) [][]byte {
		all := make([][]byte, 4*datagramsMost)
		for i := range all {
			all[i] = []byte("no")
		}
		return all
	})
	ctx, cancel := context.WithTimeout(t.Context(), ample/2)
	defer cancel()
	if err := Run(ctx, udpCheck(flood, ample, "ping", "yes")); err == nil || ctx.Err() != nil {
		t.Errorf("%v, %v", err, ctx.Err())
	}
}
