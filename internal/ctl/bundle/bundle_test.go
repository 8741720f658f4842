package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

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
