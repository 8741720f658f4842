package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// files reads an archive.
func files(t *testing.T, archived []byte) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(archived))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for in := tar.NewReader(zip); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(header.Name, "/")
		all[name] = string(text)
	}
}

func packed(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	a := newArchive(&out, time.Unix(0, 0))
	if _, err := a.add("part", []byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	return files(t, out.Bytes())["part"]
}

// Real secrets of the kinds that the programs make, in the places where they may turn up, are in no archive.
func TestNoSecretIsInTheArchive(t *testing.T) {
	join, err := trust.NewJoinSecret()
	if err != nil {
		t.Fatal(err)
	}
	user, err := trust.NewUserSecret("alice")
	if err != nil {
		t.Fatal(err)
	}
	authority, err := trust.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := authority.PEM()
	if err != nil || !bytes.Contains(key, []byte("PRIVATE KEY")) {
		t.Fatalf("no key to hide: %v", err)
	}
	middle := strings.Split(string(key), "\n")[2] // of the body of some block
	for name, c := range map[string]struct{ text, secret string }{
		"a join token in a log":         {"level=INFO msg=\"token " + join.Text() + "\"\n", join.Text()},
		"a user's token in a header":    {"authorization: Bearer " + user.Text() + "\n", user.Text()},
		"another bearer token":          {"Authorization: Bearer abc.def-ghi\n", "abc.def-ghi"},
		"a key":                         {"key: |\n" + string(key), "PRIVATE KEY-----\nM"},
		"a key whose end is missing":    {string(key)[:len(key)/2], middle},
		"a password in a URL":           {"otlp-endpoint: http://me:s3cret@10.0.0.1:4317\n", "s3cret"},
		"a password in a configuration": {"bgp-password: s3cret\n", "s3cret"},
		"one in JSON":                   {`{"password": "s3 cret", "name": "x"}` + "\n", "s3 cret"},
		"one in JSON, escaped":          {`{"secret":"a\"s3cret"}` + "\n", "s3cret"},
		"one of two words":              {"password: two s3cret\n", "s3cret"},
		"one with a comma":              {"password: two,s3cret\n", "s3cret"},
		"one with a quote in quotes":    {"password: 'it''s3cret'\n", "s3cret"},
		"one of quotes and more":        {"password: \"two\"s3cret\n", "s3cret"},
		"one of quotes and a word":      {"password: \"two\" s3cret\n", "s3cret"},
		"one in a variable":             {"WEIR_BGP_PASSWORD=two s3cret\n", "s3cret"},
		"one in a block":                {"a:\n  secret: |\n    first\n\n    s3cret\n  b: c\n", "s3cret"},
		"one in a block in a list":      {"- secret: >-\n    s3cret\n  b: c\n", "s3cret"},
		"one below its key":             {"secret:\n  s3cret\n", "s3cret"},
		"one that goes on below":        {"password: two\n  s3cret\n", "s3cret"},
		"a list":                        {"secrets:\n- one\n- s3cret\nb: c\n", "s3cret"},
		"an object":                     {`{"secret": {"data": {"x": "}"}, "y": "s3cret"}}` + "\n", "s3cret"},
		"one in JSON in a log":          {`msg="{\"password\":\"two s3cret\"}"` + "\n", "s3cret"},
		"a name and password by HTTP":   {"Authorization: Basic bWU6czNjcmV0\n", "bWU6czNjcmV0"},
		"the same in JSON":              {`{"Authorization":["Basic bWU6czNjcmV0"]}` + "\n", "bWU6czNjcmV0"},
		"a token in a URL":              {"url: https://s3cret@example.net/x\n", "s3cret"},
		"a password with an @ in a URL": {"url: HTTPS://me:two@s3cret@example.net/x\n", "s3cret"},
	} {
		if got := packed(t, c.text); strings.Contains(got, c.secret) || !strings.Contains(got, redacted) {
			t.Errorf("%s: %q is in\n%s", name, c.secret, got)
		}
	}
	const harmless = "address=10.0.0.1,as=65000,password-file=/etc/weir/bgp,bfd=100ms\nhttps://10.0.0.1:7400/\nca-hash: sha256:ab\n"
	if got := packed(t, harmless); got != harmless {
		t.Errorf("what is no secret was taken out:\n%s", got)
	}
}

// What stands beside a secret stays: an archive is to be of use.
func TestWhatStandsBesideASecretStays(t *testing.T) {
	for text, want := range map[string]string{
		`{"password": "a b", "name": "x"}`:         `{"password": [REDACTED], "name": "x"}`,
		`{"secret":null,"name":"x"}`:               `{"secret":[REDACTED],"name":"x"}`,
		`{"secret":{"a":["}"]},"name":"x"}`:        `{"secret":[REDACTED],"name":"x"}`,
		`level=INFO secret="a b" node=m1`:          `level=INFO secret=[REDACTED] node=m1`,
		"secret: |\n  a\n\n  b\n\nname: x\n":       "secret: [REDACTED]\n\nname: x\n",
		"a:\n  secret:\n    b: c\n  name: x\n":     "a:\n  secret:[REDACTED]\n  name: x\n",
		"secret:\n- a\n- b\nname: x\n":             "secret:[REDACTED]\nname: x\n",
		"password: \"a\" # of BGP\nname: x\n":      "password: [REDACTED] # of BGP\nname: x\n",
		"got secret: a\n  at main.go:7\nname: x\n": "got secret: [REDACTED]\n  at main.go:7\nname: x\n",
		"password:\nname: x\n":                     "password:\nname: x\n",
	} {
		if got := packed(t, text); got != want {
			t.Errorf("%q became\n%q, want\n%q", text, got, want)
		}
	}
}

// An archive has its bounds, and says what was cut. A token at the cut is whole or gone.
func TestBounds(t *testing.T) {
	join, err := trust.NewJoinSecret()
	if err != nil {
		t.Fatal(err)
	}
	line := "a token: " + join.Text() + "\n"
	var out bytes.Buffer
	a := newArchive(&out, time.Unix(0, 0))
	a.part, a.left = 1<<13, 1<<16
	text := []byte(strings.Repeat(line, 1<<13/len(line)+100))
	for i := range 12 {
		note, err := a.add(string(rune('a'+i)), text)
		if err != nil || !strings.Contains(note, "bytes") {
			t.Fatalf("part %d: %q, %v", i, note, err)
		}
	}
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	sum := 0
	for name, text := range files(t, out.Bytes()) {
		if sum += len(text); strings.Contains(text, "weir_join_") || !strings.HasSuffix(text, "[CUT]\n") {
			t.Errorf("%s ends in %q", name, text[max(0, len(text)-60):])
		}
	}
	if sum > 1<<16+12*len("[CUT]\n") {
		t.Errorf("%d bytes", sum)
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("x", "y")
	f.Add("-----BEGIN EC PRIVATE KEY-----", "password: ")
	f.Fuzz(func(t *testing.T, before, after string) {
		const token = "weir_join_0123456789ab.0123456789012345678901234567890123456789012"
		got := string(redact([]byte(before + "\n" + token + "\n" + after)))
		if strings.Contains(got, token) {
			t.Errorf("the token is in %q", got)
		}
	})
}

// eventful is a manager of more events than an archive has, in pages of 400.
type eventful struct {
	weirv1connect.UnimplementedWeirServiceHandler
	events int
}

func (m eventful) ListEvents(_ context.Context, r *weirv1.ListEventsRequest) (*weirv1.ListEventsResponse, error) {
	from, _ := strconv.Atoi(r.GetPageToken()) // none: from the first
	answer := &weirv1.ListEventsResponse{}
	for i := from; i < min(from+400, m.events); i++ {
		answer.Events = append(answer.Events, &weirv1.Event{Name: fmt.Sprint(i)})
	}
	if from+400 < m.events {
		answer.NextPageToken = strconv.Itoa(from + 400)
	}
	return answer, nil
}

// The newest events are listed last, and what led to a fault is there.
func TestTheLastEventsAreInTheArchive(t *testing.T) {
	const n = 2*mostList + 500
	mux := http.NewServeMux()
	mux.Handle(weirv1connect.NewWeirServiceHandler(eventful{events: n}))
	server := httptest.NewUnstartedServer(mux)
	server.Config.Protocols = &http.Protocols{}
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	client, err := rpc.NewClient(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	for _, p := range clusterParts(client) {
		if p.name != "cluster/events.json" {
			continue
		}
		text, err := p.bounded(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		answer := &weirv1.ListEventsResponse{}
		if err := protojson.Unmarshal(text, answer); err != nil {
			t.Fatal(err)
		}
		all := answer.GetEvents()
		if len(all) != mostList || all[0].GetName() != fmt.Sprint(n-mostList) || all[mostList-1].GetName() != fmt.Sprint(n-1) {
			t.Errorf("%d of %d events are in the archive, from %s on", len(all), n, all[0].GetName())
		}
		return
	}
	t.Error("an archive has no events")
}
