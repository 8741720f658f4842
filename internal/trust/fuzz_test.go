package trust

import (
	"encoding/base64"
	"net/url"
	"reflect"
	"testing"
)

// What is taken for a token is one to the letter: it has no other spelling.
func FuzzTokens(f *testing.F) {
	join, err := NewJoinSecret()
	if err != nil {
		f.Fatal(err)
	}
	user, err := NewUserSecret("alice")
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{join.Text(), user.Text(), joinHead, userHead + "a.", join.Text() + "\n", "weir_join_é." + join.secret} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for head, parse := range map[string]func(string) (Secret, error){joinHead: ParseJoin, userHead: ParseUser} {
			secret, err := parse(text)
			if err != nil {
				if !reflect.DeepEqual(secret, Secret{}) {
					t.Errorf("%q is refused, but not empty: %+v", text, secret)
				}
				continue
			}
			if secret.Text() != text || secret.head != head || secret.ID == "" || !secret.Matches(secret.Hash()) {
				t.Errorf("%q was read as %q", text, secret.Text())
			}
			if other := (Secret{head: head, ID: secret.ID + "x", secret: secret.secret}); other.Matches(secret.Hash()) {
				t.Errorf("%q matches another id", text)
			}
		}
	})
}

// A certificate's URI names one identity or nobody, and an identity has one URI.
func FuzzParseURI(f *testing.F) {
	for _, text := range []string{
		"weir://mux/mux1", "weir://user/alice", "weir://mux/mux1?a=b", "weir://mux/%6dux1", "weir://x@mux/mux1", "weir://mux:1/mux1",
		"weir:mux/mux1", "https://manager/m1", "weir://king/a", "weir://mux/a/b", "weir://mux/", "weir://MUX/a", "weir://mux/a#b",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.Parse(text)
		if err != nil {
			return
		}
		i, err := ParseURI(u)
		if err != nil {
			if !i.Anonymous() {
				t.Errorf("%q is refused, but is %s", text, i)
			}
			return
		}
		if got := i.uri().String(); got != u.String() || got != "weir://"+i.String() {
			t.Errorf("%q is %s, whose URI is %q", text, i, got)
		}
		if i.May(Viewer, "shop") && i.Kind != Manager || len(i.Bindings) > 0 || i.Method != "" {
			t.Errorf("%q gives a right: %+v", text, i)
		}
	})
}

// What a manager says of a caller is somebody who showed something, or nobody, and goes on unchanged.
func FuzzDecodeIdentity(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"kind":"user","name":"alice","method":"token","bindings":[{"tenant":"shop","role":"viewer"}]}`,
		`{"kind":"mux","name":"mux1","method":"certificate","issue":3,"from":"192.0.2.1:1"}`, `{"kind":"user","name":"a","method":"insecure"}`,
		`{"kind":"user","name":"a","method":"token","bindings":[{"tenant":"*","role":"king"}]}`, `[]`, `{"kind":"mux","name":"../x"}`,
	} {
		f.Add(base64.RawURLEncoding.EncodeToString([]byte(text)))
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		i, err := DecodeIdentity(text)
		if err != nil {
			if !reflect.DeepEqual(i, Identity{}) {
				t.Errorf("%q is refused, but is %+v", text, i)
			}
			return
		}
		if i.Anonymous() || i.Method != ByCertificate && i.Method != ByToken {
			t.Errorf("%q is %+v", text, i)
		}
		for _, b := range i.Bindings {
			if b.Validate() != nil {
				t.Errorf("%q has the binding %s", text, b)
			}
		}
		again, err := i.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if same, err := DecodeIdentity(again); err != nil || !reflect.DeepEqual(same, i) {
			t.Errorf("%+v became %+v: %v", i, same, err)
		}
	})
}
