package manager

import (
	"crypto/tls"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/rpc/bound"
	"github.com/weirlb/weir/internal/trust"
)

// HTTP/2 takes no more requests of a connection at once than the manager says; by its certificate it says how many.
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
		streams      uint32
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
			if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
				t.Fatal(err)
			}
			framer := http2.NewFramer(conn, conn)
			if err := framer.WriteSettings(); err != nil {
				t.Fatal(err)
			}
			frame, err := framer.ReadFrame() // a server's first is of its settings
			if err != nil {
				t.Fatal(err)
			}
			if n, _ := frame.(*http2.SettingsFrame).Value(http2.SettingMaxConcurrentStreams); n != c.streams {
				t.Errorf("the manager takes %d, want %d", n, c.streams)
			}
		})
	}
}
