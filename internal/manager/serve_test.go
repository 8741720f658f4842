package manager

import (
	"bytes"
	"crypto/tls"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/rpc/bound"
	"github.com/weirlb/weir/internal/trust"
)

// Of the requests that one connection opens at once, only so many are taken as its certificate allows.
func TestStreamsOfAConnection(t *testing.T) {
	m, _, _ := secure(t, Config{})
	credential := func(authority *trust.Authority) []tls.Certificate {
		issued, err := pki.Issue(authority, trust.Identity{Kind: trust.User, Name: "admin"}, nil, nil, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{*issued.TLS()}
	}
	forger, err := trust.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		certificates []tls.Certificate
		streams      int
	}{
		"without a certificate": {nil, bound.StreamsOthers},
		"of another authority":  {credential(forger), bound.StreamsOthers},
		"certified":             {credential(m.identity.Authority()), bound.StreamsCertified},
	} {
		t.Run(name, func(t *testing.T) {
			config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: c.certificates} //nolint:gosec // the test asks who is let in
			conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", m.Address().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(20 * time.Second)) // the read tells
			if _, err := conn.Write(requests(c.streams + 20)); err != nil {
				t.Fatal(err)
			}
			told, refused := answers(t, http2.NewFramer(nil, conn), c.streams+20)
			if told != c.streams || refused < 20 {
				t.Errorf("the manager says that it takes %d, and refused %d; want %d, and at least 20", told, refused, c.streams)
			}
		})
	}
}

// requests are the bytes of a client that opens so many streams at once, and ends none: each announces a body.
func requests(streams int) []byte {
	var out, block bytes.Buffer
	out.WriteString(http2.ClientPreface)
	framer, encoder := http2.NewFramer(&out, nil), hpack.NewEncoder(&block)
	framer.WriteSettings()
	framer.WriteSettingsAck()
	for i := range streams {
		block.Reset()
		for _, field := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":authority", "m"}, {":path", "/weir.v1.TrustService/Join"}} {
			encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndHeaders: true})
	}
	return out.Bytes()
}

// answers returns how many streams the server says it takes, and how many it refused, until the last was answered.
func answers(t *testing.T, framer *http2.Framer, streams int) (told, refused int) {
	t.Helper()
	answered := map[uint32]bool{}
	for len(answered) < streams {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("after %d answers: %v", len(answered), err)
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if n, ok := f.Value(http2.SettingMaxConcurrentStreams); ok {
				told = int(n)
			}
		case *http2.RSTStreamFrame:
			if !answered[f.StreamID] {
				refused++
			}
			answered[f.StreamID] = true
		case *http2.HeadersFrame:
			answered[f.StreamID] = true
		}
	}
	return told, refused
}
