package webui

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/internal/audit"
	"github.com/weirlb/weir/internal/trust"
	"github.com/weirlb/weir/internal/webui/oidc"
	"github.com/weirlb/weir/internal/webui/origin"
)

// Root is below what the page is served.
const Root = "/ui/"

// Serves says whether a path is of this package.
func Serves(path string) bool { return path == "/" || path == "/ui" || strings.HasPrefix(path, Root) }

// IsPage says whether a request reads a file of the page: anybody may, from a link anywhere.
func IsPage(r *http.Request) bool {
	return Serves(r.URL.Path) && (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.URL.Path != sessionsPath
}

const (
	sessionPath  = Root + "session"
	sessionsPath = Root + "sessions"
	signInPath   = Root + "sign-in"
	beginPath    = Root + "oidc/begin"
)

// policy lets the page load its own files and call its own origin, and nothing else. Nobody may frame it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// Handler serves the page and its sessions.
type Handler struct {
	Sessions *Sessions
	// Identify is whose the token is; nobody, with a reason, if it is not in force.
	Identify func(r *http.Request, token string) trust.Identity
	// Provider signs users in; nil: there is none. SignIn is the user of whom it has signed in;
	// changed says, also beside a refusal, that the user's roles are others than before.
	Provider *oidc.Provider
	SignIn   func(context.Context, oidc.Person) (user trust.Identity, changed bool, err error)
	Log      *slog.Logger

	routes *http.ServeMux
}

// Init prepares the Handler to serve the files that are embedded.
func (h *Handler) Init() error {
	h.routes = http.NewServeMux()
	page, err := newFiles(dist)
	if err != nil {
		return err
	}
	toPage := http.RedirectHandler(Root, http.StatusTemporaryRedirect)
	h.routes.Handle("GET /{$}", toPage)
	h.routes.Handle("GET /ui", toPage)
	h.routes.Handle("GET "+Root, page)
	h.routes.HandleFunc("POST "+sessionPath, h.signIn)
	h.routes.HandleFunc("DELETE "+sessionPath, h.signOut)
	h.routes.HandleFunc("GET "+sessionsPath, h.listSessions)
	h.routes.HandleFunc("DELETE "+sessionsPath+"/{id}", h.endSession)
	h.routes.HandleFunc("GET "+signInPath, h.waysToSignIn)
	if h.Provider != nil {
		h.routes.HandleFunc("GET "+beginPath, h.beginByProvider)
		h.routes.HandleFunc("GET "+oidc.CallbackPath, h.endByProvider)
	}
	return nil
}

// ServeHTTP serves a path that Serves names.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	h.routes.ServeHTTP(w, r)
}

// statuses are what refusals are answered with, as the API answers them by Connect.
var statuses = map[connect.Code]int{
	connect.CodeInvalidArgument: http.StatusBadRequest, connect.CodeUnauthenticated: http.StatusUnauthorized,
	connect.CodePermissionDenied: http.StatusForbidden, connect.CodeNotFound: http.StatusNotFound,
	connect.CodeResourceExhausted: http.StatusTooManyRequests, connect.CodeUnavailable: http.StatusServiceUnavailable,
}

// refuse answers with the reason, as the API does in JSON, and notes it for the audit log, as the API does.
func refuse(w http.ResponseWriter, r *http.Request, code connect.Code, err error) {
	status := statuses[code]
	if code != connect.CodeInvalidArgument { // what can't be read is noted as such
		audit.End(r.Context(), connect.NewError(code, err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"message": err.Error()}) //nolint:errcheck // the client is gone
}

var errTooMany = errors.New("too many sessions are open with this manager: end some, or sign in to another manager")

// signIn exchanges a token for a session.
func (h *Handler) signIn(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Token string `json:"token"`
	}
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") || !origin.Own(r) {
		refuse(w, r, connect.CodePermissionDenied, errors.New("only the page of this manager may sign users in"))
		return
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&body); err != nil {
		refuse(w, r, connect.CodeInvalidArgument, errors.New("send {\"token\": \"...\"}"))
		return
	}
	caller := h.Identify(r, strings.TrimSpace(body.Token))
	if caller.Anonymous() {
		refuse(w, r, connect.CodeUnauthenticated, errors.New(caller.Reason))
		return
	}
	h.Sessions.EndOf(r) // a browser has one
	if h.begin(w, r, caller, maxAge) {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	refuse(w, r, connect.CodeResourceExhausted, errTooMany)
}

// begin begins a session of a user, which lasts for most at most, and sets its cookie, if there is room.
func (h *Handler) begin(w http.ResponseWriter, r *http.Request, user trust.Identity, most time.Duration) bool {
	from, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		from = r.RemoteAddr
	}
	secret := h.Sessions.begin(user, from, r.UserAgent(), most)
	if secret == "" {
		return false
	}
	h.Log.Info("user signed in to the web page", "identity", user.String(), "remote", from)
	w.Header().Del("Connection") // admission closes those of strangers, and this is none any more
	setCookie(w, secret, int(min(most, maxAge).Seconds()))
	return true
}

func setCookie(w http.ResponseWriter, value string, seconds int) {
	http.SetCookie(w, &http.Cookie{
		Name: CookieName, Value: value, Path: "/", MaxAge: seconds, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
}

// signOut ends the session of the request.
func (h *Handler) signOut(w http.ResponseWriter, r *http.Request) {
	h.Sessions.EndOf(r)
	setCookie(w, "", -1)
	w.WriteHeader(http.StatusNoContent)
}

// own is the caller, if it is a user; else the request is answered.
func own(w http.ResponseWriter, r *http.Request) (user string, ok bool) {
	caller := trust.FromContext(r.Context())
	if caller.Kind != trust.User {
		refuse(w, r, connect.CodeUnauthenticated, errors.New("sign in first"))
		return "", false
	}
	return caller.String(), true
}

// listSessions lists the caller's sessions.
func (h *Handler) listSessions(w http.ResponseWriter, r *http.Request) {
	if user, ok := own(w, r); ok {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{"sessions": h.Sessions.list(user, r)}) //nolint:errcheck // the client is gone
	}
}

// endSession ends one of the caller's sessions.
func (h *Handler) endSession(w http.ResponseWriter, r *http.Request) {
	user, ok := own(w, r)
	switch {
	case !ok:
	case h.Sessions.endByID(user, r.PathValue("id")):
		w.WriteHeader(http.StatusNoContent)
	default:
		refuse(w, r, connect.CodeNotFound, errors.New("there is no such session of yours: it may have ended"))
	}
}
