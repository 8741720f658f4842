package manager

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// as is a client of m that shows a certificate.
func as(t *testing.T, m *Manager, url string, by *trust.Authority, i trust.Identity, life time.Duration) *rpc.Client {
	t.Helper()
	credential, err := pki.Issue(by, i, nil, nil, life)
	if err != nil {
		t.Fatal(err)
	}
	return connected(t, rpc.Access{
		Managers: url, CA: m.identity.Authority().Certificate, Current: func() *trust.Credential { return credential },
	})
}

// audited waits until refusals with each of the texts stand in the audit log.
func auditedWith(t *testing.T, admin *rpc.Client, texts ...string) {
	t.Helper()
	for _, want := range texts {
		eventually(t, "the audit log has "+want, func() bool {
			list, err := admin.ListAudit(t.Context(), &weirv1.ListAuditRequest{Refused: true})
			if err != nil {
				return false
			}
			for _, e := range list.GetEntries() {
				if strings.Contains(strings.Join([]string{e.GetIdentity(), e.GetProcedure(), e.GetSubject(), e.GetResult(), e.GetReason()}, " "), want) {
					return true
				}
			}
			return false
		})
	}
}

func TestCertificatesAndTokensOutOfForce(t *testing.T) {
	m, admin, url := secure(t, Config{})
	late := member(t, admin, url, &weirv1.CreateTokenRequest{Role: "mux", Ttl: durationpb.New(time.Microsecond)}, trust.Mux, "mux9")
	refusedWith(t, "a token that expired", late.Obtain(t.Context()), "make another with weir token create")

	foreign, err := trust.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	boss := trust.Identity{Kind: trust.User, Name: "admin"}
	call := func(c *rpc.Client) error {
		_, err := c.ListVIPs(t.Context(), &weirv1.ListVIPsRequest{})
		return err
	}
	refusedWith(t, "an admin of another cluster", call(as(t, m, url, foreign, boss, time.Hour)), "join this one with a token")
	refusedWith(t, "a manager of another cluster", call(as(t, m, url, foreign, trust.Identity{Kind: trust.Manager, Name: "m2"}, time.Hour)), "of another CA")
	refusedWith(t, "a certificate that expired", call(as(t, m, url, m.identity.Authority(), boss, -time.Minute)), "join again with a new token")
	refusedWith(t, "a user that is not there", call(as(t, m, url, m.identity.Authority(), trust.Identity{Kind: trust.User, Name: "eve"}, time.Hour)), "there is no user/eve")
	own := as(t, m, url, m.identity.Authority(), trust.Identity{Kind: trust.Mux, Name: "mux7"}, time.Hour)
	_, err = own.RegisterNode(t.Context(), &weirv1.RegisterNodeRequest{})
	refusedWith(t, "what managers do, by a mux", err, "only managers do")

	if err := call(admin); err != nil {
		t.Errorf("the admin, meanwhile: %v", err)
	}
	auditedWith(t, admin, "the join token expired", "of another CA", "the certificate expired", "there is no user/eve", "mux/mux7 may not call RegisterNode")
}

// on is a request with a body that its sender shows the credential for, none if it is nil.
func send(t *testing.T, by *trust.Credential, method, url, kind string, body io.Reader, header ...string) (status int, text string) {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the client is under test here least of all
	if by != nil {
		config.Certificates = []tls.Certificate{*by.TLS()}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer answer.Body.Close()
	all, _ := io.ReadAll(answer.Body) // what came is looked at
	return answer.StatusCode, string(all) + answer.Header.Get("Grpc-Message") + answer.Trailer.Get("Grpc-Message")
}

// maxApply bounds an apply, in bytes.
var maxApply = limits.Of(weirv1connect.WeirServiceApplyVIPsProcedure).Bytes

// unsized hides how long a body is.
type unsized struct{ io.Reader }

func TestRequestsThatAreNone(t *testing.T) {
	t.Parallel()
	m, admin, url := secure(t, Config{})
	boss, err := pki.Issue(m.identity.Authority(), trust.Identity{Kind: trust.User, Name: "admin"}, nil, nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	mux, err := pki.Issue(m.identity.Authority(), trust.Identity{Kind: trust.Mux, Name: "mux1"}, nil, nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	const proto, json = "application/proto", "application/json"
	join, apply := weirv1connect.TrustServiceJoinProcedure, weirv1connect.WeirServiceApplyVIPsProcedure
	list := weirv1connect.WeirServiceListVIPsProcedure
	large := func(n int) io.Reader { return strings.NewReader(strings.Repeat(" ", n)) }
	before := m.store.State().Generation
	for what, c := range map[string]struct {
		by         *trust.Credential
		path, kind string
		body       io.Reader
		status     int
		want       string
		header     []string
	}{
		"a large join":                 {nil, join, proto, large(limits.Unknown + 1), 429, "send a token, a name and a request", nil},
		"a large join of no length":    {nil, join, proto, unsized{large(limits.Unknown + 1)}, 429, "resource_exhausted", nil},
		"a large call by nobody":       {nil, apply, proto, large(4 * limits.Unknown), 401, "show a client certificate or a bearer token", nil},
		"a large apply":                {boss, apply, proto, large(maxApply + 1), 429, "apply fewer VIPs at a time", nil},
		"a large apply of no length":   {boss, apply, proto, unsized{large(maxApply + 1)}, 429, "resource_exhausted", nil},
		"a large apply by REST":        {boss, "/v1/vips:apply", json, unsized{io.MultiReader(strings.NewReader(`{"vips": "`), large(maxApply))}, 413, "apply fewer VIPs at a time", nil},
		"protobuf that is none":        {boss, apply, proto, strings.NewReader("\xff\xff\xff"), 400, "unmarshal", nil},
		"protobuf of nobody":           {nil, join, proto, strings.NewReader("\xff\xff\xff"), 400, "unmarshal", nil},
		"JSON that is none":            {boss, apply, json, strings.NewReader(`{"vips": [`), 400, "unmarshal", nil},
		"an unknown field":             {boss, apply, json, strings.NewReader(`{"vipz": []}`), 400, "vipz", nil},
		"JSON that is none, by REST":   {boss, "/v1/vips:apply", json, strings.NewReader(`{"vips": [`), 400, "unexpected", nil},
		"gRPC whose length lies":       {boss, apply, "application/grpc", strings.NewReader("\x00\xff\xff\xff\xff"), 200, "apply fewer VIPs at a time", nil},
		"a kind nobody knows":          {boss, apply, "text/plain", strings.NewReader("vips"), 415, "", nil},
		"a join without a token":       {nil, join, json, strings.NewReader(`{"role": "mux", "name": "mux1"}`), 401, "must begin with weir_join_", nil},
		"a join of no role":            {nil, join, json, strings.NewReader(`{"role": "king", "name": "mux1"}`), 400, "must be mux, agent, switch or manager", nil},
		"no scheme of authorization":   {nil, list, json, strings.NewReader("{}"), 401, "must be Bearer", []string{"Authorization", "Basic YTpi"}},
		"a token that is none":         {nil, list, json, strings.NewReader("{}"), 401, "must begin with weir_user_", []string{"Authorization", "Bearer x"}},
		"nobody on behalf of others":   {nil, list, json, strings.NewReader("{}"), 401, "only a manager may", []string{trust.OnBehalfHeader, "e30"}},
		"a mux on behalf of others":    {mux, list, json, strings.NewReader("{}"), 401, "mux/mux1 may not call on behalf", []string{trust.OnBehalfHeader, "e30"}},
		"an admin on behalf of others": {boss, list, json, strings.NewReader("{}"), 401, "user/admin may not call on behalf", []string{trust.OnBehalfHeader, "e30"}},
	} {
		status, text := send(t, c.by, http.MethodPost, url+c.path, c.kind, c.body, c.header...)
		if status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s: got %d %.300s, want %d with %q", what, status, text, c.status, c.want)
		}
	}
	auditedWith(t, admin, "nobody "+join, fmt.Sprintf("the request has %d bytes", limits.Unknown+1), "user/admin "+apply, "malformed", "only a manager may", "mux/mux1 may not call on behalf")
	if after := m.store.State().Generation; after != before {
		t.Errorf("the generation went from %d to %d", before, after)
	}
}

// Managers alone say on whose behalf they call: no other who is known may, whatever there is to be shown.
func TestOnlyManagersCallOnBehalf(t *testing.T) {
	m, _, url := secure(t, Config{})
	boss, err := trust.Identity{
		Kind: trust.User, Name: "admin", Method: trust.ByCertificate, From: "192.0.2.7:99",
		Bindings: []trust.Binding{{Tenant: trust.AllTenants, Role: trust.Admin}},
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for kind, name := range map[trust.Kind]string{trust.Mux: "mux1", trust.Host: "host1", trust.User: "admin", trust.Manager: "m2"} {
		by, err := pki.Issue(m.identity.Authority(), trust.Identity{Kind: kind, Name: name}, nil, nil, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		status, text := send(t, by, http.MethodPost, url+weirv1connect.TrustServiceListUsersProcedure, "application/json",
			strings.NewReader("{}"), trust.OnBehalfHeader, boss)
		if kind == trust.Manager {
			if status != 200 {
				t.Errorf("a manager on behalf of an admin: %d %s", status, text)
			}
		} else if want := fmt.Sprintf("%s/%s may not call on behalf of others", kind, name); status != 401 || !strings.Contains(text, want) {
			t.Errorf("%s on behalf of an admin: %d %s, want %q", kind, status, text, want)
		}
	}
}

// Managers say on whose behalf they call, but not that nothing was shown.
func TestOnBehalf(t *testing.T) {
	m, admin, url := secure(t, Config{})
	peer, err := pki.Issue(m.identity.Authority(), trust.Identity{Kind: trust.Manager, Name: "m2"}, nil, nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateUser(t.Context(), &weirv1.CreateUserRequest{User: &weirv1.User{
		Name: "rita", Bindings: []*weirv1.Binding{{Tenant: "default", Role: "viewer"}},
	}}); err != nil {
		t.Fatal(err)
	}
	// The other manager has not heard that rita is no admin any more.
	user := trust.Identity{Kind: trust.User, Name: "rita", Method: trust.ByToken, From: "192.0.2.7:99", Bindings: []trust.Binding{{Tenant: "*", Role: trust.Admin}}}
	ask := func(i trust.Identity, procedure string) (int, string) {
		encoded, err := i.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return send(t, peer, http.MethodPost, url+procedure, "application/json", strings.NewReader("{}"), trust.OnBehalfHeader, encoded)
	}
	if status, text := ask(user, weirv1connect.TrustServiceWhoAmIProcedure); status != 200 || !strings.Contains(text, "user/rita") {
		t.Errorf("for rita: %d %s", status, text)
	}
	if status, text := ask(user, weirv1connect.TrustServiceListUsersProcedure); status != 403 || !strings.Contains(text, "user/rita may not call ListUsers") {
		t.Errorf("for rita, what admins do: %d %s", status, text)
	}
	if _, err := admin.RotateUser(t.Context(), &weirv1.RotateUserRequest{Name: "rita"}); err != nil {
		t.Fatal(err)
	}
	if status, text := ask(user, weirv1connect.TrustServiceWhoAmIProcedure); status != 401 || !strings.Contains(text, "was revoked") {
		t.Errorf("for rita, by a token that was replaced: %d %s", status, text)
	}
	user.Method = trust.Insecure
	if status, text := ask(user, weirv1connect.TrustServiceWhoAmIProcedure); status != 401 || !strings.Contains(text, "is no proof") {
		t.Errorf("for somebody who showed nothing: %d %s", status, text)
	}
	auditedWith(t, admin, "user/rita may not call ListUsers", "is no proof")
}

// raw opens a connection and sends what is given, behind a handshake or without.
func raw(t *testing.T, m *Manager, secured bool, text string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", m.Address().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if secured {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) //nolint:gosec // as above
	}
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// Strangers who send slowly, or what is no HTTP, are hung up on; others don't notice.
func TestSlowStrangersAreHungUpOn(t *testing.T) {
	m, admin, _ := secure(t, Config{}, func(m *Manager) { m.api.UnauthenticatedTime = 3 * time.Second })
	const post = "POST " + weirv1connect.TrustServiceJoinProcedure + " HTTP/1.1\r\nHost: m\r\nContent-Type: application/proto\r\nContent-Length: 1000\r\n\r\n"
	conns := map[string]net.Conn{
		"no handshake":          raw(t, m, false, "\x16\x03"),
		"half a header":         raw(t, m, true, "GET /healthz HTTP/1.1\r\nHost: m\r\nX-Slow: "),
		"a join without body":   raw(t, m, true, post),
		"half a join":           raw(t, m, true, post+"\x0a"),
		"a call without body":   raw(t, m, true, strings.Replace(post, weirv1connect.TrustServiceJoinProcedure, weirv1connect.WeirServiceApplyVIPsProcedure, 1)),
		"no HTTP":               raw(t, m, true, "\x00\x01\x02\r\n\r\n"),
		"HTTP without TLS":      raw(t, m, false, "GET /healthz HTTP/1.1\r\nHost: m\r\n\r\n"),
		"headers without end":   raw(t, m, true, "GET /healthz HTTP/1.1\r\nHost: m\r\nX-Long: "+strings.Repeat("a", 2*limits.HeadersCertified)),
		"a path that is no one": raw(t, m, true, "GET /../../etc HTTP/1.1\r\nHost: m\r\n\r\n"),
	}
	if _, err := admin.GetStatus(t.Context(), &weirv1.GetStatusRequest{}); err != nil {
		t.Errorf("the admin, meanwhile: %v", err)
	}
	answers := map[string]string{
		"a call without body": "show a client certificate", "no HTTP": "400 Bad Request",
		"HTTP without TLS": "Client sent an HTTP request to an HTTPS server", "headers without end": "431",
	}
	for what, conn := range conns {
		conn.SetReadDeadline(time.Now().Add(15 * time.Second)) // the read tells
		answer, err := io.ReadAll(conn)
		if nerr, ok := err.(net.Error); ok && nerr.Timeout() { //nolint:errorlint // io.ReadAll returns it bare
			t.Errorf("%s: the connection stays open", what)
		}
		if !strings.Contains(string(answer), answers[what]) {
			t.Errorf("%s: the answer is %q, want %q", what, answer, answers[what])
		}
	}
}

// A reader of a stream that takes nothing is cut off, and holds nobody up.
func TestSlowReaders(t *testing.T) {
	m, admin, url := secure(t, Config{}, func(m *Manager) { m.api.SlowReader = time.Second })
	request := &weirv1.ApplyVIPsRequest{}
	for i := range 200 {
		vip := bare("vip"+string(rune('a'+i/26))+string(rune('a'+i%26)), fmt.Sprintf("203.0.113.%d", i+1))
		vip.Labels = map[string]string{"a": strings.Repeat("x", 60), "b": strings.Repeat("y", 60), "c": strings.Repeat("z", 60)}
		request.Vips = append(request.Vips, vip)
	}
	if _, err := admin.ApplyVIPs(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	slow := slowWatch(t, m, url)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	quick, err := admin.WatchVIPs(ctx, &weirv1.WatchVIPsRequest{NamePrefix: "new"})
	if err != nil || !quick.Receive() {
		t.Fatalf("a watch beside it: %v", err)
	}
	if _, err := admin.CreateVIP(t.Context(), &weirv1.CreateVIPRequest{Vip: bare("new", "203.0.113.250")}); err != nil {
		t.Errorf("a write beside it: %v", err)
	}
	if !quick.Receive() || quick.Msg().GetVip().GetName() != "new" {
		t.Errorf("a watch beside it: %v, %v", quick.Msg(), quick.Err())
	}
	eventually(t, "the slow reader's watch is ended", func() bool { return m.resources.Watches.Open() == 1 })
	if _, err := io.Copy(io.Discard, slow); err == nil {
		t.Error("the slow reader's stream ended as if it were complete")
	}
}

// slowWatch opens a watch of REST over HTTP/2, of which not more than a little is taken before it is read.
func slowWatch(t *testing.T, m *Manager, url string) io.Reader {
	t.Helper()
	boss, err := pki.Issue(m.identity.Authority(), trust.Identity{Kind: trust.User, Name: "admin"}, nil, nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{*boss.TLS()}}, //nolint:gosec // as above
		Protocols:       &http.Protocols{}, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 16 << 10},
	}
	transport.Protocols.SetHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/vips:watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := transport.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("the watch: %v, %v", answer, err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	return answer.Body
}

// A watch of REST that has nothing to tell lasts, and ends with its caller's right.
func TestWatchesOfRESTLast(t *testing.T) {
	m, admin, url := secure(t, Config{}, func(m *Manager) { m.api.SlowReader, m.resources.Bookmark = 300*time.Millisecond, time.Second })
	stream := slowWatch(t, m, url)
	lines := 0
	buffer := make([]byte, 4096)
	for lines < 3 {
		n, err := stream.Read(buffer)
		if err != nil {
			t.Fatalf("the watch ended after %d bookmarks: %v", lines, err)
		}
		lines += bytes.Count(buffer[:n], []byte{'\n'})
	}
	_, err := admin.RevokePrincipal(t.Context(), &weirv1.RevokePrincipalRequest{Role: "user", Name: "admin"})
	refusedWith(t, "the revocation of the last admin", err, "make another first")
	if _, err := admin.CreateUser(t.Context(), &weirv1.CreateUserRequest{User: &weirv1.User{
		Name: "second", Bindings: []*weirv1.Binding{{Tenant: trust.AllTenants, Role: "admin"}},
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RevokePrincipal(t.Context(), &weirv1.RevokePrincipalRequest{Role: "user", Name: "admin"}); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(stream)
	if err != nil || !strings.Contains(string(rest), "was revoked") {
		t.Errorf("after the revocation: %s, %v", rest, err)
	}
	_, err = admin.WhoAmI(t.Context(), &weirv1.WhoAmIRequest{})
	if connect.CodeOf(err) != connect.CodeUnauthenticated && !isCode(err, connect.CodeUnauthenticated) {
		t.Errorf("the admin that was revoked: %v", err)
	}
}
