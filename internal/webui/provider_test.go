package webui

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/trust"
	"github.com/weirlb/weir/internal/webui/oidc"
)

// withProvider is a handler whose provider knows none of the codes that it is asked for.
func withProvider(t *testing.T, back string) *Handler {
	t.Helper()
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := "http://" + r.Host
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/token" {
			w.WriteHeader(http.StatusBadRequest)
			w.Write([]byte(`{"error": "invalid_grant"}`)) // the client says
			return
		}
		json.NewEncoder(w).Encode(map[string]string{ // the client says
			"issuer": at, "authorization_endpoint": at + "/authorize", "token_endpoint": at + "/token", "jwks_uri": at + "/keys",
		})
	}))
	t.Cleanup(provider.Close)
	h := newHandler(t)
	h.SignIn = func(context.Context, oidc.Person) (user trust.Identity, changed bool, err error) {
		t.Error("somebody is signed in")
		return user, false, nil
	}
	var err error
	h.Provider, err = oidc.New(oidc.Config{
		Issuer: provider.URL, ClientID: "weir", RedirectURL: back, Groups: []string{"netops=operator"},
	}, "", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Init(); err != nil {
		t.Fatal(err)
	}
	return h
}

func begin(h *Handler, host string) *httptest.ResponseRecorder {
	r := get(beginPath)
	r.Host = host
	return h.answer(r)
}

// The address that the provider leads back to is the one that browsers say, however it is written.
func TestSignInsBeginAtTheAddressOfTheProvider(t *testing.T) {
	for _, c := range []struct {
		back, host string
		want       int
	}{
		{"https://M1.Example.org:443" + oidc.CallbackPath, "m1.example.org", http.StatusSeeOther},
		{"https://m1.example.org" + oidc.CallbackPath, "m1.example.org:443", http.StatusSeeOther},
		{"https://m1.example.org:7400" + oidc.CallbackPath, "m1.example.org:7400", http.StatusSeeOther},
		{"https://m1.example.org:7400" + oidc.CallbackPath, "m1.example.org", http.StatusForbidden},
		{"https://m1.example.org" + oidc.CallbackPath, "m2.example.org", http.StatusForbidden},
	} {
		if w := begin(withProvider(t, c.back), c.host); w.Code != c.want {
			t.Errorf("back to %s, from a page of %s: %d %s, want %d", c.back, c.host, w.Code, w.Body, c.want)
		}
	}
}

// Who is refused because too many sign in keeps what the browser has of the sign-in: to load the page again is enough.
func TestBusySignInsCanBeTriedAgain(t *testing.T) {
	h := withProvider(t, "https://m1.example.org"+oidc.CallbackPath)
	w := begin(h, "m1.example.org")
	to, err := url.Parse(w.Header().Get("Location"))
	if err != nil || len(w.Result().Cookies()) != 1 {
		t.Fatalf("the beginning: %d %s", w.Code, w.Body)
	}
	codes := map[int]int{}
	for range 100 {
		r := get(oidc.CallbackPath + "?code=c&state=" + to.Query().Get("state"))
		r.AddCookie(w.Result().Cookies()[0])
		answer := h.answer(r)
		codes[answer.Code]++
		if dropped := answer.Header().Get("Set-Cookie") != ""; dropped != (answer.Code != http.StatusTooManyRequests) {
			t.Errorf("%d %s: the browser drops its sign-in: %v", answer.Code, answer.Body, dropped)
		}
	}
	if codes[http.StatusUnauthorized] == 0 || codes[http.StatusTooManyRequests] == 0 || len(codes) != 2 {
		t.Errorf("the answers are %v", codes)
	}
}
