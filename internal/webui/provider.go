package webui

import (
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/audit"
	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/webui/oidc"
	"github.com/weirlb/weir/internal/webui/origin"
)

// attemptCookie holds a sign-in under way. Browsers send a lax cookie when the provider leads them back; the session's, which
// is strict, they don't.
const attemptCookie = "__Host-weir-oidc"

// waysToSignIn says by what users may sign in beside a token.
func (h *Handler) waysToSignIn(w http.ResponseWriter, _ *http.Request) {
	var ways struct {
		Provider string `json:"provider"`
	}
	if h.Provider != nil {
		ways.Provider = h.Provider.Name()
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(ways) //nolint:errcheck // the client is gone
}

func setAttempt(w http.ResponseWriter, value string, seconds int) {
	http.SetCookie(w, &http.Cookie{
		Name: attemptCookie, Value: value, Path: "/", MaxAge: seconds, Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
}

// beginByProvider sends a browser to the provider.
func (h *Handler) beginByProvider(w http.ResponseWriter, r *http.Request) {
	if origin.Foreign(r) { // a link elsewhere would sign the user in unasked
		h.failed(w, r, connect.NewError(connect.CodePermissionDenied, errors.New("a page of another origin may not sign you in")))
		return
	}
	if !h.Provider.IsAt(r.Host) { // the cookies of this sign-in would not be there
		h.failed(w, r, connect.NewError(connect.CodePermissionDenied,
			fmt.Errorf("the provider leads back to another address: open %s%s and sign in there", h.Provider.Origin(), Root)))
		return
	}
	to, attempt, err := h.Provider.Begin(r.Context())
	if err != nil {
		h.failed(w, r, err)
		return
	}
	setAttempt(w, attempt, int(oidc.MaxAttempt.Seconds()))
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// endByProvider begins the session of a user whom the provider has signed in. The answer is a page that goes on to the one
// of the manager: a strict cookie is not sent with what a page elsewhere leads to.
func (h *Handler) endByProvider(w http.ResponseWriter, r *http.Request) {
	var attempt string
	if cookie, err := r.Cookie(attemptCookie); err == nil {
		attempt = cookie.Value
	}
	who, err := h.Provider.Finish(r.Context(), limits.SourceOf(r.RemoteAddr), r.URL.Query(), attempt)
	if connect.CodeOf(err) != connect.CodeResourceExhausted { // the code was not used: who loads the page again goes on
		setAttempt(w, "", -1)
	}
	if err != nil {
		h.failed(w, r, err)
		return
	}
	user, changed, err := h.SignIn(r.Context(), who)
	if changed { // it is noted as what an admin would have done
		audit.By(r.Context(), user)
		audit.Begin(r.Context(), weirv1connect.TrustServiceUpdateUserProcedure, &weirv1.UpdateUserRequest{Name: user.Name})
		audit.End(r.Context(), nil)
	}
	if err != nil {
		h.failed(w, r, err)
		return
	}
	if !h.begin(w, r, user, time.Until(who.Until)) {
		h.failed(w, r, connect.NewError(connect.CodeResourceExhausted, errTooMany))
		return
	}
	h.page(w, http.StatusOK, pageData{Next: true})
}

type pageData struct {
	Why  string
	Next bool
}

// plain is a page without a script, which a browser comes to from the provider.
var plain = template.Must(template.New("plain").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Weir</title>
{{if .Next}}<meta http-equiv="refresh" content="0; url=` + Root + `">{{end}}
<main><h1>Weir</h1>{{if .Why}}<p role="alert">{{.Why}}</p>{{end}}<p><a href="` + Root + `">{{if .Next}}To the page{{else}}Sign in{{end}}</a></p></main></html>
`))

func (h *Handler) page(w http.ResponseWriter, status int, data pageData) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	plain.Execute(w, data) //nolint:errcheck // the client is gone
}

// failed tells the user, and the audit log, why nobody is signed in.
func (h *Handler) failed(w http.ResponseWriter, r *http.Request, err error) {
	audit.End(r.Context(), err)
	status, known := statuses[connect.CodeOf(err)]
	if !known {
		status = http.StatusInternalServerError
	}
	why := err.Error()
	var refused *connect.Error
	if errors.As(err, &refused) {
		why = refused.Message()
	}
	h.Log.Warn("sign-in by the provider failed", "remote", r.RemoteAddr, "err", why)
	h.page(w, status, pageData{Why: why})
}
