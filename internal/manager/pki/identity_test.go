package pki

import (
	"context"
	"log/slog"
	"net"
	"testing"

	"github.com/weirlb/weir/internal/store/truststore"
	"github.com/weirlb/weir/internal/testkit/teststore"
	"github.com/weirlb/weir/internal/trust"
)

// A store that is restored on an empty machine may know a manager of that name which has joined again since it began: the new
// one has a certificate that is in force. One that was revoked for good does not come back by an empty folder.
func TestAFounderOfARestoredStore(t *testing.T) {
	for _, revoked := range []bool{false, true} {
		s := teststore.Open(t)
		settle := func() (*Identity, error) {
			i, err := New(t.Context(), Config{Name: "m1", DataDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7400})
			if err != nil {
				t.Fatal(err)
			}
			_, err = i.Settle(t.Context(), s, "https://127.0.0.1:7400")
			return i, err
		}
		if _, err := settle(); err != nil {
			t.Fatal(err)
		}
		err := s.Trust.Update(context.Background(), func(*truststore.Trust) (truststore.Change, error) {
			return truststore.Change{Principals: []trust.Principal{{Kind: trust.Manager, Name: "m1", Issue: 2, Revoked: revoked}}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		i, err := settle()
		if (err != nil) != revoked {
			t.Errorf("revoked %t: settles with %v", revoked, err)
		}
		if err == nil && i.Current().Identity.Issue != 2 {
			t.Errorf("the certificate is of issue %d", i.Current().Identity.Issue)
		}
	}
}
