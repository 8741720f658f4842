package webui

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/trust"
	"github.com/weirlb/weir/internal/webui/origin"
)

// clock is what sessions go by.
type clock struct{ now time.Time }

func newClock() (*clock, *Sessions) {
	c := &clock{time.Unix(1000, 0)}
	return c, NewSessions(func() time.Time { return c.now })
}

func user(name string) trust.Identity {
	return trust.Identity{Kind: trust.User, Name: name, Method: trust.ByToken}
}

// showing is a request of the page itself that shows a session's secret.
func showing(secret string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "https://manager/weir.v1.TrustService/WhoAmI", nil)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.AddCookie(&http.Cookie{Name: CookieName, Value: secret})
	return r
}

// A session is idle for so long, and lasts for so long, at most; while a request is under way it is not idle.
func TestSessionsEnd(t *testing.T) {
	c, s := newClock()
	known := func(secret string) bool { _, ok := s.Caller(showing(secret)); return ok }
	idle := s.begin(user("ann"), "192.0.2.1", "", maxAge)
	busy := s.begin(user("ann"), "192.0.2.1", "", maxAge)
	within, leave := s.Use(showing(busy))
	c.now = c.now.Add(maxIdle - time.Second)
	if !known(idle) {
		t.Error("a session ends before its time")
	}
	c.now = c.now.Add(time.Second)
	if known(idle) || !known(busy) {
		t.Errorf("after %s: the idle session is known: %t, the one in use: %t", maxIdle, known(idle), known(busy))
	}
	c.now = c.now.Add(maxAge - maxIdle)
	if known(busy) {
		t.Errorf("a session is older than %s", maxAge)
	}
	leave()
	if s.list("user/ann", showing("")); len(s.all) != 0 {
		t.Errorf("%d sessions that ended are kept", len(s.all))
	}
	if within.Context().Err() == nil {
		t.Error("a request that is over goes on")
	}
}

// A session whose time is over stays ended, whatever shows its cookie again, and whichever way.
func TestExpiredSessionsAreNotRevived(t *testing.T) {
	c, s := newClock()
	secret := s.begin(user("ann"), "192.0.2.1", "", maxAge)
	c.now = c.now.Add(maxIdle)
	_, leave := s.Use(showing(secret))
	leave()
	if _, known := s.Caller(showing(secret)); known {
		t.Error("a request after the session's time has revived it")
	}
	if len(s.all) != 0 {
		t.Errorf("%d sessions that ended are kept", len(s.all))
	}
}

// A session is the user's, not the address that it began from: each request comes from where it comes from.
func TestSessionsTellNoAddress(t *testing.T) {
	_, s := newClock()
	ann := user("ann")
	ann.From = "192.0.2.1:4000"
	if caller, _ := s.Caller(showing(s.begin(ann, "192.0.2.1", "", maxAge))); caller.From != "" || caller.Name != "ann" {
		t.Errorf("a later request is of %s, from %q", caller, caller.From)
	}
}

// Signing out ends the streams that were opened in the session.
func TestEndedSessionEndsItsStreams(t *testing.T) {
	_, s := newClock()
	secret := s.begin(user("ann"), "", "", maxAge)
	within, leave := s.Use(showing(secret))
	defer leave()
	if within.Context().Err() != nil {
		t.Fatal("a stream of a session that goes on has ended")
	}
	s.EndOf(showing(secret))
	select {
	case <-within.Context().Done():
	case <-time.After(10 * time.Second):
		t.Fatal("a stream of a session that was ended goes on")
	}
	if _, known := s.Caller(showing(secret)); known {
		t.Error("a session that was ended is known")
	}
}

// One user, and all users together, have a bounded number of sessions; nobody ends another's.
func TestSessionsAreBounded(t *testing.T) {
	c, s := newClock()
	first := s.begin(user("ann"), "", "", maxAge)
	for range maxUserSessions {
		c.now = c.now.Add(time.Second)
		s.begin(user("ann"), "", "", maxAge)
	}
	if _, known := s.Caller(showing(first)); known || len(s.all) != maxUserSessions {
		t.Errorf("a user has %d sessions, the oldest: %t", len(s.all), known)
	}
	for i := range maxSessions {
		s.begin(user(fmt.Sprint("user", i)), "", "", maxAge)
	}
	if len(s.all) != maxSessions || s.begin(user("bob"), "", "", maxAge) != "" {
		t.Errorf("there are %d sessions, more than %d", len(s.all), maxSessions)
	}
	id := s.list("user/ann", showing(""))[0].ID
	if s.endByID("user/user1", id) || !s.endByID("user/ann", id) {
		t.Error("a session is ended by another user, or not by its own")
	}
}

// A cookie counts only where the browser says that a page of this origin asks.
func TestCookiesCountFromOwnPagesAlone(t *testing.T) {
	_, s := newClock()
	secret := s.begin(user("ann"), "", "", maxAge)
	for _, c := range []struct {
		site, origin   string
		known, foreign bool
	}{
		{"same-origin", "https://manager", true, false},
		{"same-origin", "", true, false},
		{"", "https://manager", true, false},
		{"same-site", "https://manager:8443", false, true},
		{"cross-site", "https://evil.example", false, true},
		{"cross-site", "https://manager", false, true},
		{"", "https://evil.example", false, true},
		{"", "null", false, true},
		{"none", "", false, false},
		{"", "", false, false},
	} {
		r := showing(secret)
		r.Header.Del("Sec-Fetch-Site")
		for name, value := range map[string]string{"Sec-Fetch-Site": c.site, "Origin": c.origin} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		if _, known := s.Caller(r); known != c.known || origin.Foreign(r) != c.foreign {
			t.Errorf("site %q, origin %q: the session is known: %t, the page foreign: %t", c.site, c.origin, known, origin.Foreign(r))
		}
	}
	if _, known := s.Caller(showing(secret + "x")); known {
		t.Error("a forged secret is believed")
	}
}
