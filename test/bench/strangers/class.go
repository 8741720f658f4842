package main

import (
	"bytes"
	"compress/gzip"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirlb/weir/api/v1/weirv1connect"
)

// class is a kind of request.
type class struct {
	name         string
	text         []byte                   // sent as it is
	bare         bool                     // without TLS
	silent       bool                     // nothing is done but held: many at once
	hold         time.Duration            // when the client hangs up
	certificates [][]tls.Certificate      // of the clients, by turns
	http2        func(c *tls.Conn) string // speaks instead of text
	streams      int                      // requests of a connection; 0: one
}

// Classes of clients whose certificates another CA has signed.
const (
	wrongP256 = "wrong certificate"
	wrongP521 = "wrong certificate, P-521"
	wrongRSA  = "wrong certificate, RSA of 8 192 bits"
	wrongMany = "wrong certificates, 240 KiB of them"
)

func (c class) requests() int { return max(1, c.streams) }

// post is a request of HTTP/1.1.
func post(path, kind string, body []byte, headers ...string) []byte {
	text := "POST " + path + " HTTP/1.1\r\nHost: m\r\nContent-Type: " + kind + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n"
	for _, header := range headers {
		text += header + "\r\n"
	}
	return append([]byte(text+"\r\n"), body...)
}

// allClasses are bare handshakes, and the worst requests that are known.
func allClasses() ([]class, error) {
	const join = weirv1connect.TrustServiceJoinProcedure
	packed, err := packedJoin()
	if err != nil {
		return nil, err
	}
	enveloped := append(binary.BigEndian.AppendUint32([]byte{1}, uint32(len(packed))), packed...)
	headers := strings.Repeat("X-A: "+strings.Repeat("a", 100)+"\r\n", 140) // 15 KB, short of where they are refused
	many := make([]string, 0, 1500)
	for i := range 1500 {
		many = append(many, fmt.Sprintf("X%d: 1", i))
	}
	token := "Authorization: Bearer weir_user_admin." + strings.Repeat("A", 43)
	half := post(join, "application/proto", make([]byte, 1000))
	classes := []class{
		{name: "bare handshake"},
		{name: "packed join", text: post(join, "application/proto", packed, "Content-Encoding: gzip")},
		{name: "packed gRPC join", text: post(join, "application/grpc", enveloped, "Grpc-Encoding: gzip", "TE: trailers")},
		{name: "packed gRPC join that does not say so", text: post(join, "application/grpc", enveloped, "TE: trailers")},
		{name: "join of 16 KiB of empty fields", text: post(join, "application/proto", bytes.Repeat([]byte{0x0a, 0}, 8<<10))},
		{name: "huge headers", text: []byte("GET /healthz HTTP/1.1\r\nHost: m\r\n" + headers + "\r\n")},
		{name: "1 500 headers", text: []byte("GET /healthz HTTP/1.1\r\nHost: m\r\n" + strings.Join(many, "\r\n") + "\r\n\r\n")},
		{name: "made-up token, backup", text: post(weirv1connect.ClusterServiceBackupProcedure, "application/connect+proto", make([]byte, 5), token)},
		{name: "made-up token, AllocatePorts", text: post(weirv1connect.SyncServiceAllocatePortsProcedure, "application/proto", nil, token)},
		{name: "half bodies held open", text: half[:len(half)-500], hold: time.Second},
		{name: "healthz", text: []byte("GET /healthz HTTP/1.1\r\nHost: m\r\n\r\n")},
		{name: "silent connections", bare: true, silent: true, hold: time.Second},
		{name: "silent after the handshake", silent: true, hold: time.Second},
		{name: "HTTP/2, 100 streams", streams: 100, http2: func(c *tls.Conn) string { return speak(c, 100, false, "x") }},
		{name: "HTTP/2, 100 streams, reset", streams: 100, http2: func(c *tls.Conn) string { return speak(c, 100, true, "x") }},
		{name: "HTTP/2, 100 streams, packed headers", streams: 100, http2: func(c *tls.Conn) string { return speak(c, 100, false, strings.Repeat("x", 3500)) }},
	}
	for _, name := range []string{wrongP256, wrongP521, wrongRSA, wrongMany} {
		classes = append(classes, class{name: name, text: []byte("GET /v1/vips HTTP/1.1\r\nHost: m\r\n\r\n")})
	}
	return classes, nil
}

// packedJoin is a join of 60 MiB, in 61 KB.
func packedJoin() ([]byte, error) {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	const size = 60 << 20
	head := binary.AppendUvarint([]byte{0x1a}, size) // the name
	_, err = w.Write(append(head, bytes.Repeat([]byte("x"), size)...))
	return packed.Bytes(), errors.Join(err, w.Close())
}

// makeCertificates gives the classes of clients with wrong certificates these: another CA has signed them.
func makeCertificates(classes []class) error {
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	p521, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		return err
	}
	large, err := rsa.GenerateMultiPrimeKey(rand.Reader, 4, 8192) //nolint:staticcheck // two primes take half a minute; who checks sees no difference
	if err != nil {
		return err
	}
	keys := map[string]crypto.Signer{wrongP256: p256, wrongP521: p521, wrongRSA: large, wrongMany: p256}
	for i := range classes {
		key := keys[classes[i].name]
		if key == nil {
			continue
		}
		for range 4 {
			certificate := tls.Certificate{PrivateKey: key}
			for size := 0; size == 0 || classes[i].name == wrongMany && size < 240<<10; {
				one, err := wrongCertificate(key, p256)
				if err != nil {
					return err
				}
				certificate.Certificate = append(certificate.Certificate, one)
				size += len(one) + 5
			}
			classes[i].certificates = append(classes[i].certificates, []tls.Certificate{certificate})
		}
	}
	return nil
}

func wrongCertificate(key, by crypto.Signer) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "user/admin"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	return x509.CreateCertificate(rand.Reader, template, template, key.Public(), by)
}

// speak opens streams of HTTP/2 by one connection, and returns in a word how it ended.
func speak(c *tls.Conn, streams int, reset bool, value string) string {
	var out, block bytes.Buffer
	out.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&out, c)
	encoder := hpack.NewEncoder(&block)
	framer.WriteSettings() //nolint:errcheck // to memory
	for i := range streams {
		block.Reset()
		fields := []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "m"}, {Name: ":path", Value: "/healthz"}}
		for range 16 {
			fields = append(fields, hpack.HeaderField{Name: "x", Value: value})
		}
		for _, field := range fields {
			encoder.WriteField(field) //nolint:errcheck // to memory
		}
		id := uint32(2*i + 1)
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}) //nolint:errcheck // likewise
		if reset {
			framer.WriteRSTStream(id, http2.ErrCodeCancel) //nolint:errcheck // likewise
		}
	}
	c.Write(out.Bytes()) //nolint:errcheck // what is read tells
	for answered := 0; !reset && answered < streams; {
		frame, err := framer.ReadFrame()
		if err != nil {
			return "closed early"
		}
		if frame.Header().Flags.Has(http2.FlagDataEndStream) && frame.Header().StreamID != 0 {
			answered++
		}
		if away, ok := frame.(*http2.GoAwayFrame); ok && away.ErrCode != http2.ErrCodeNo {
			return away.ErrCode.String()
		}
	}
	c.CloseWrite()                                    //nolint:errcheck // what is read tells
	io.Copy(io.Discard, io.LimitReader(c, maxAnswer)) //nolint:errcheck // until the manager hangs up
	return "spoken"
}
