package uiproxy

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/weirlb/weir/internal/webui/origin"
)

const (
	cookieName = "weir-ui"
	openPath   = "/open/" // and the secret
	pagePath   = "/ui/"
	leavePath  = "/ui/session"
	apiPrefix  = "/weir.v1." // of the services; REST is not for pages
)

// gate lets the requests of one browser through: the first that shows the secret.
type gate struct {
	name   string // host that requests are for
	secret string

	mu     sync.Mutex
	cookie [sha256.Size]byte // hash of its value
	given  bool
	ended  bool
}

func newGate() *gate {
	var name [8]byte
	rand.Read(name[:]) // it never fails
	return &gate{name: "weir-" + hex.EncodeToString(name[:]) + ".localhost", secret: newSecret()}
}

func newSecret() string {
	var random [32]byte
	rand.Read(random[:]) // it never fails
	return base64.RawURLEncoding.EncodeToString(random[:])
}

// refusal is why a request is not let through.
type refusal struct {
	status int
	why    string
}

func (r *refusal) Error() string { return r.why }

func refuse(status int, why string) *refusal { return &refusal{status, why} }

// wellFormed refuses what the page never sends: another manager or proxy could read it in another way than this one.
func wellFormed(r *http.Request) error {
	clean := path.Clean(r.URL.Path)
	if strings.HasSuffix(r.URL.Path, "/") && clean != "/" {
		clean += "/"
	}
	switch {
	case r.URL.Host != "" || r.URL.RawPath != "" || clean != r.URL.Path || strings.ContainsAny(r.URL.Path, "\\\x00"):
		return refuse(http.StatusBadRequest, "the path must be plain, as /ui/")
	case r.Header.Get("Upgrade") != "":
		return refuse(http.StatusBadRequest, "no other protocol is spoken here")
	case r.ContentLength < 0:
		return refuse(http.StatusLengthRequired, "the request must tell its length")
	case r.ContentLength > maxBody:
		return refuse(http.StatusRequestEntityTooLarge, "the request is too large")
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete:
		return nil
	}
	return refuse(http.StatusMethodNotAllowed, "the page makes no such request")
}

// admit says why a request is not let through to a manager.
func (g *gate) admit(r *http.Request) error {
	changes := r.Method != http.MethodGet && r.Method != http.MethodHead
	switch {
	case !g.names(r.Host):
		return errOtherName
	case !g.known(r):
		return refuse(http.StatusForbidden, "weir ui does not know this browser: run weir ui again, and open the address that it prints")
	case origin.Foreign(r), changes && !origin.Own(r):
		return refuse(http.StatusForbidden, "a page of another origin may not call this")
	case r.URL.Path != "/" && r.URL.Path != "/ui" && !strings.HasPrefix(r.URL.Path, pagePath) && !strings.HasPrefix(r.URL.Path, apiPrefix):
		return refuse(http.StatusNotFound, "there is the page alone: see "+pagePath)
	}
	return nil
}

var errOtherName = refuse(http.StatusMisdirectedRequest, "this address is of no page: open the one that weir ui prints")

// names says whether a request is for this proxy. The port may be another: that of a tunnel which leads here.
func (g *gate) names(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.EqualFold(host, g.name)
}

// known says whether the request shows the cookie.
func (g *gate) known(r *http.Request) bool {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return false
	}
	shown := sha256.Sum256([]byte(cookie.Value))
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.given && !g.ended && subtle.ConstantTimeCompare(shown[:], g.cookie[:]) == 1
}

var errUsed = errors.New("this address was opened already")

// open exchanges the secret for a cookie, once.
func (g *gate) open(secret string) (cookie string, err error) {
	shown, wanted := sha256.Sum256([]byte(secret)), sha256.Sum256([]byte(g.secret))
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case subtle.ConstantTimeCompare(shown[:], wanted[:]) != 1:
		return "", refuse(http.StatusForbidden, "this address is not the one that weir ui has printed")
	case g.given:
		return "", errUsed
	}
	cookie = newSecret()
	g.cookie, g.given = sha256.Sum256([]byte(cookie)), true
	return cookie, nil
}

// end has the gate let nothing through any more.
func (g *gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
}
