package webui

import (
	"compress/gzip"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/weirlb/weir/internal/trust"
)

// pageBytes bounds what a browser loads, packed.
const pageBytes = 120_000

func newHandler(t *testing.T) *Handler {
	t.Helper()
	_, s := newClock()
	h := &Handler{Sessions: s, Log: slog.New(slog.DiscardHandler), Identify: func(_ *http.Request, token string) trust.Identity {
		if token == "good" {
			return user("ann")
		}
		return trust.Identity{Reason: "the bearer token is not valid"}
	}}
	if err := h.Init(); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *Handler) answer(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func get(path string) *http.Request { return httptest.NewRequest(http.MethodGet, path, nil) }

var loaded = regexp.MustCompile(`(?:src|href)="(/ui/[^"]+)"`)

// The page that is embedded is there with all that it loads, by a strict policy, and is small.
func TestPageIsServed(t *testing.T) {
	h := newHandler(t)
	index := h.answer(get(Root))
	if index.Code != http.StatusOK || index.Header().Get("Cache-Control") != "no-cache" {
		t.Fatalf("the page: %d %v", index.Code, index.Header())
	}
	policy := index.Header().Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy %q has no %q", policy, want)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") || index.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("the policy %q lets others in", policy)
	}
	paths, size := loaded.FindAllStringSubmatch(index.Body.String(), -1), index.Body.Len()
	if len(paths) < 2 {
		t.Fatalf("the page loads %v", paths)
	}
	for _, path := range paths {
		r := get(path[1])
		r.Header.Set("Accept-Encoding", "gzip")
		w := h.answer(r)
		if w.Code != http.StatusOK || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v", path[1], w.Code, w.Header())
		}
		size += w.Body.Len()
		plain, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(plain); err != nil || len(text) == 0 {
			t.Errorf("%s: %v", path[1], err)
		}
		again := get(path[1])
		again.Header.Set("If-None-Match", w.Header().Get("ETag"))
		if w := h.answer(again); w.Code != http.StatusNotModified {
			t.Errorf("%s is sent again: %d", path[1], w.Code)
		}
	}
	if size > pageBytes {
		t.Errorf("the page has %d bytes packed, more than %d", size, pageBytes)
	}
	for _, path := range []string{"/ui/none", "/ui/assets/../../session.go", "/ui/dist/index.html"} {
		if w := h.answer(get(path)); w.Code == http.StatusOK {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if _, err := newFiles(fstest.MapFS{"dist/other": {}}); err == nil {
		t.Error("a page without index.html is served")
	}
}

func signIn(token string, change ...func(*http.Request)) *http.Request {
	r := httptest.NewRequest(http.MethodPost, sessionPath, strings.NewReader(`{"token": "`+token+`"}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for _, do := range change {
		do(r)
	}
	return r
}

// A token becomes a cookie that scripts can't read and other sites can't use; what else comes becomes none.
func TestSignIn(t *testing.T) {
	h := newHandler(t)
	w := httptest.NewRecorder()
	w.Header().Set("Connection", "close") // as of a stranger's request
	h.ServeHTTP(w, signIn("good"))
	if w.Header().Get("Connection") != "" {
		t.Error("the connection of a user that has signed in is closed")
	}
	cookie := w.Header().Get("Set-Cookie")
	if w.Code != http.StatusNoContent {
		t.Fatalf("signed in: %d %s", w.Code, w.Body)
	}
	for _, want := range []string{"__Host-weir=", "; Path=/;", "HttpOnly", "Secure", "SameSite=Strict", "Max-Age=43200"} {
		if !strings.Contains(cookie, want) {
			t.Errorf("the cookie %q has no %q", cookie, want)
		}
	}
	for what, c := range map[string]struct {
		request *http.Request
		want    int
	}{
		"a wrong token":    {signIn("bad"), http.StatusUnauthorized},
		"of another page":  {signIn("good", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }), http.StatusForbidden},
		"of no page":       {signIn("good", func(r *http.Request) { r.Header.Del("Sec-Fetch-Site") }), http.StatusForbidden},
		"a form":           {signIn("good", func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }), http.StatusForbidden},
		"no JSON":          {signIn(`"`), http.StatusBadRequest},
		"far too long":     {signIn(strings.Repeat("x", 2000)), http.StatusBadRequest},
		"a list of nobody": {get(sessionsPath), http.StatusUnauthorized},
	} {
		if w := h.answer(c.request); w.Code != c.want || w.Header().Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %s %q", what, w.Code, w.Body, w.Header().Get("Set-Cookie"))
		}
	}
	// A browser that signs in again has one session.
	if h.answer(signIn("good", func(r *http.Request) { r.AddCookie(w.Result().Cookies()[0]) })); len(h.Sessions.all) != 1 {
		t.Errorf("a browser has %d sessions", len(h.Sessions.all))
	}
}
