package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// Bounds of the clocks' difference. The manager tells its time to the second.
const (
	clockWarn = 3 * time.Second
	clockFail = time.Minute
)

const answerTime = 5 * time.Second

// managers asks each of them how it is, and what time it is there.
func managers(ctx context.Context, s Subject) []Finding {
	var found []Finding
	for _, m := range strings.Split(s.Managers, ",") {
		found = append(found, oneManager(ctx, s, strings.TrimSpace(m))...)
	}
	return found
}

// neverStarted says whether the machine is a manager that has no certificate yet, as before its first start.
func (s Subject) neverStarted() bool {
	if s.Role != Manager || s.DataDir == "" {
		return false
	}
	_, err := os.Stat(trust.NodeFile(s.DataDir))
	return errors.Is(err, os.ErrNotExist)
}

// managerURL is a manager as --manager takes it, in full.
func managerURL(m string) (*url.URL, error) {
	if !strings.Contains(m, "://") {
		m = "https://" + m
	}
	u, err := url.Parse(m)
	if err == nil && u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), rpc.DefaultPort)
	}
	return u, err
}

func oneManager(ctx context.Context, s Subject, m string) []Finding {
	u, err := managerURL(m)
	if err != nil {
		return bad(Fail, "mend --manager", "read %q: %v", m, err)
	}
	// Who it is, is for the client to check that trusts it with something; here it is asked for its time only.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // see above
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.Scheme+"://"+u.Host+"/healthz", http.NoBody)
	if err != nil {
		return bad(Fail, "mend --manager", "read %q: %v", m, err)
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if errors.Is(err, syscall.ECONNREFUSED) && s.neverStarted() {
		return bad(Warn, "systemctl enable --now weir-manager, and ask again", "nothing answers at %s: it was not started yet", u.Host)
	}
	if err != nil {
		return bad(Fail, "check that weir-manager runs there, and that TCP to it passes: curl -kv "+request.URL.String(), "no answer of %s: %v", u.Host, err)
	}
	defer answer.Body.Close()
	word, err := io.ReadAll(io.LimitReader(answer.Body, 200))
	if err != nil || answer.StatusCode != http.StatusOK {
		return bad(Fail, "look at its log", "%s answers %s: %s", u.Host, answer.Status, strings.TrimSpace(string(word)))
	}
	found := ok("%s answers", u.Host)
	if answer.TLS != nil {
		found = append(found, validity("the certificate of "+u.Host, answer.TLS.PeerCertificates[0])...)
	}
	return append(found, clock(u.Host, answer.Header.Get("Date"), time.Now())...)
}

// clock compares this machine's clock with a manager's.
func clock(name, date string, now time.Time) []Finding {
	there, err := http.ParseTime(date)
	if err != nil {
		return unknown(fmt.Errorf("read the time of %s: %w", name, err), "compare the clocks by hand")
	}
	// The date is cut to the second: the clocks agree if ours lies within that second, or near it.
	offset := now.Sub(there.Add(500 * time.Millisecond)).Round(time.Second)
	const next = "set the clocks of both machines by NTP"
	switch size := offset.Abs(); {
	case size > clockFail:
		return bad(Fail, next, "the clock here is %s from that of %s: certificates and tokens are refused", offset, name)
	case size > clockWarn:
		return bad(Warn, next, "the clock here is %s from that of %s", offset, name)
	}
	return ok("the clock agrees with that of %s", name)
}

// certificates looks at those that the program of this machine keeps.
func certificates(_ context.Context, s Subject) []Finding {
	if s.DataDir == "" {
		return ok("none is looked at: no --data-dir")
	}
	var found []Finding
	for _, path := range []string{trust.NodeFile(s.DataDir), trust.CAFile(s.DataDir)} {
		data, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			found = append(found, unknown(err, "use sudo, and name the program's own --data-dir")...)
			continue
		}
		for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
			if block.Type != "CERTIFICATE" {
				continue
			}
			certificate, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				found = append(found, bad(Fail, "remove it and join again with a token", "read %s: %v", path, err)...)
				continue
			}
			name := path
			if certificate.IsCA {
				name = "the cluster's CA in " + path
			}
			found = append(found, validity(name, certificate)...)
		}
	}
	if len(found) == 0 {
		return ok("%s holds none", s.DataDir)
	}
	return found
}

// validity says whether a certificate holds now, and for how long. A node renews its own when a third is left.
func validity(name string, c *x509.Certificate) []Finding {
	now := time.Now()
	left := c.NotAfter.Sub(now)
	switch {
	case now.Before(c.NotBefore):
		return bad(Fail, "set the clock by NTP", "%s holds only from %s on", name, c.NotBefore.UTC().Format(time.DateTime))
	case left <= 0:
		return bad(Fail, "join again with a token: weir token create", "%s ended at %s", name, c.NotAfter.UTC().Format(time.DateTime))
	case left < c.NotAfter.Sub(c.NotBefore)/6:
		return bad(Warn, "look at the log for why it is not renewed", "%s ends at %s and was not renewed", name, c.NotAfter.UTC().Format(time.DateTime))
	}
	return ok("%s holds until %s", name, c.NotAfter.UTC().Format(time.DateTime))
}
