package manager

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/trust"
)

// gzipped is a text as gzip packs it.
func gzipped(t *testing.T, text []byte) []byte {
	t.Helper()
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// allocated is how many bytes the process has allocated while do ran.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// enveloped is a message as gRPC and streams send it.
func enveloped(flags byte, message []byte) []byte {
	head := binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(message)))
	return append(head, message...)
}

// What a stranger sends packed is neither inflated nor parsed, by any protocol: 60 KiB on the wire stay 60 KiB.
func TestStrangersInflateNothing(t *testing.T) {
	_, _, url := secure(t, Config{})
	message, err := proto.Marshal(&weirv1.JoinRequest{Name: strings.Repeat("x", 60<<20)})
	if err != nil {
		t.Fatal(err)
	}
	packed := gzipped(t, message)
	if len(packed) > 64<<10 {
		t.Fatalf("the join has %d bytes packed", len(packed))
	}
	join := url + weirv1connect.TrustServiceJoinProcedure
	for what, c := range map[string]struct {
		kind, header string
		body         []byte
	}{
		"Connect":  {"application/proto", "Content-Encoding", packed},
		"gRPC":     {"application/grpc", "Grpc-Encoding", enveloped(1, packed)},
		"gRPC-Web": {"application/grpc-web", "Grpc-Encoding", enveloped(1, packed)},
		"a lie":    {"application/grpc", "X-Nothing", enveloped(1, packed)},
	} {
		took := allocated(func() {
			status, text := send(t, nil, http.MethodPost, join, c.kind, bytes.NewReader(c.body), c.header, "gzip")
			if status == http.StatusOK && !strings.Contains(c.kind, "grpc") || strings.Contains(text, "DNS label") {
				t.Errorf("%s: got %d %s, want a refusal before it is parsed", what, status, text)
			}
		})
		if took > 8<<20 {
			t.Errorf("%s: %d bytes on the wire made the manager allocate %d", what, len(c.body), took)
		}
	}
}

// A request of many messages that are empty is refused before they are made, whoever sends it: 2 bytes on the wire are
// some hundred in memory.
func TestEmptyMessagesAreCounted(t *testing.T) {
	m, _, url := secure(t, Config{})
	boss, err := pki.Issue(m.identity.Authority(), trust.Identity{Kind: trust.User, Name: "admin"}, nil, nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	const n = 1 << 20
	text := []byte(`{"vips": [` + strings.Repeat("{},", n) + `{}]}`)
	for what, c := range map[string]struct {
		path, kind string
		body       []byte
	}{
		"protobuf":          {weirv1connect.WeirServiceApplyVIPsProcedure, "application/proto", bytes.Repeat([]byte{0x0a, 0}, n)},
		"gRPC":              {weirv1connect.WeirServiceApplyVIPsProcedure, "application/grpc", enveloped(0, bytes.Repeat([]byte{0x0a, 0}, n))},
		"JSON":              {weirv1connect.WeirServiceApplyVIPsProcedure, "application/json", text},
		"JSON of a charset": {weirv1connect.WeirServiceApplyVIPsProcedure, "application/json; charset=utf-8", text},
		"REST":              {"/v1/vips:apply", "application/json", text},
	} {
		took := allocated(func() {
			status, answer := send(t, boss, http.MethodPost, url+c.path, c.kind, bytes.NewReader(c.body))
			if !strings.Contains(answer, "holds more than 262144 messages") {
				t.Errorf("%s: got %d %.300s", what, status, answer)
			}
		})
		if most := uint64(100 << 20); took > most {
			t.Errorf("%s: %d bytes made the manager allocate %d", what, len(c.body), took)
		}
	}
}

// A misspelled field is refused in JSON whatever the charset.
func TestJSONIsStrictInEachCharset(t *testing.T) {
	m, _, url := secure(t, Config{})
	boss, err := pki.Issue(m.identity.Authority(), trust.Identity{Kind: trust.User, Name: "admin"}, nil, nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	status, text := send(t, boss, http.MethodPost, url+weirv1connect.WeirServiceApplyVIPsProcedure, "application/json; charset=utf-8", strings.NewReader(`{"vipz": []}`))
	if status != http.StatusBadRequest || !strings.Contains(text, "vipz") {
		t.Errorf("got %d %s", status, text)
	}
}

// A stranger has a few requests under way.
func TestStrangersHavePlaces(t *testing.T) {
	m, _, _ := secure(t, Config{})
	const post = "POST " + weirv1connect.TrustServiceJoinProcedure + " HTTP/1.1\r\nHost: m\r\nContent-Type: application/proto\r\nContent-Length: 1000\r\n\r\n"
	for range 20 {
		raw(t, m, true, post)
	}
	eventually(t, "one too many is told so", func() bool {
		conn := raw(t, m, true, post)
		defer conn.Close()
		conn.SetReadDeadline(time.Now().Add(time.Second)) // the read tells
		answer := make([]byte, 1024)
		n, err := conn.Read(answer)
		return (err == nil || errors.Is(err, io.EOF)) && strings.Contains(string(answer[:n]), "429")
	})
}

// A host that says that it hands a request on, as managers do, is not believed.
func TestOnlyManagersForward(t *testing.T) {
	m, _, _ := secure(t, Config{})
	handler, err := m.api.Handler()
	if err != nil {
		t.Fatal(err)
	}
	for kind, stays := range map[trust.Kind]bool{trust.Host: false, trust.Manager: true} {
		credential, err := pki.Issue(m.identity.Authority(), trust.Identity{Kind: kind, Name: "n1"}, nil, nil, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", nil)
		r.Header.Set(trust.ForwardedByHeader, "m9")
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{credential.Certificate}}
		if handler.ServeHTTP(httptest.NewRecorder(), r); (r.Header.Get(trust.ForwardedByHeader) != "") != stays {
			t.Errorf("a request that a %s says it hands on is taken for one: %t", kind, !stays)
		}
	}
}
