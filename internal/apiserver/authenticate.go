package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/truststore"
	"github.com/weirlb/weir/internal/trust"
	"github.com/weirlb/weir/internal/webui"
)

// authenticator says who makes a request, by what is trusted now.
type authenticator struct {
	identity        *pki.Identity
	store           *store.Store
	unauthenticated *unauthenticated
	sessions        *webui.Sessions
	now             func() time.Time
}

// identify is who makes a request, by what it shows.
func (a *authenticator) identify(r *http.Request) trust.Identity {
	caller, err := a.shown(r)
	if err != nil {
		caller = trust.Identity{Reason: err.Error()}
	}
	if caller.From == "" {
		caller.From = r.RemoteAddr
	}
	return caller
}

func (a *authenticator) shown(r *http.Request) (trust.Identity, error) {
	if a.identity.Insecure() {
		return trust.Identity{Kind: trust.User, Name: "anybody", Method: trust.Insecure}, nil
	}
	trusted, _ := a.store.Trust.Watch()
	caller, err := a.shownTo(r, trusted)
	if !errors.As(err, new(*pki.UnknownUserError)) {
		return caller, err
	}
	// Another manager may have made the user a moment ago. To ask costs a read of the store.
	if !a.unauthenticated.askTrust(r.RemoteAddr, a.now()) {
		return trust.Identity{}, err
	}
	newest, failed := a.store.Trust.Newest(r.Context(), trusted)
	switch {
	case failed != nil:
		return trust.Identity{}, fmt.Errorf("%w; if it is new, try again: %w", err, failed)
	case newest == trusted:
		return trust.Identity{}, err
	}
	return a.shownTo(r, newest)
}

// shownTo is who makes a request, by what trusted says of what it shows.
func (a *authenticator) shownTo(r *http.Request, trusted *truststore.Trust) (trust.Identity, error) {
	if bearer := r.Header.Get("Authorization"); bearer != "" {
		return userByToken(trusted, bearer)
	}
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		if r.Header.Get(trust.OnBehalfHeader) != "" {
			return trust.Identity{}, errors.New("only a manager may call on behalf of others")
		}
		return a.userBySession(r, trusted)
	}
	caller, err := a.identity.ByCertificate(r.TLS.PeerCertificates[0], trusted, a.now())
	if err != nil {
		return trust.Identity{}, err
	}
	if encoded := r.Header.Get(trust.OnBehalfHeader); encoded != "" {
		if caller.Kind != trust.Manager {
			return trust.Identity{}, fmt.Errorf("%s may not call on behalf of others", caller)
		}
		return a.onBehalf(r.Context(), encoded, trusted)
	}
	return caller, nil
}

// userBySession is the user of the web page's session that r shows, if the token that it was begun with is in force.
func (a *authenticator) userBySession(r *http.Request, trusted *truststore.Trust) (trust.Identity, error) {
	began, shown := a.sessions.Caller(r)
	if !shown {
		return trust.Identity{}, nil
	}
	caller, err := pki.InForce(began, trusted)
	if err != nil && !errors.As(err, new(*pki.UnknownUserError)) {
		a.sessions.EndOf(r)
	}
	return caller, err
}

// userOf is the user whose token it is; nobody, with a reason, if it is not in force.
func (a *authenticator) userOf(r *http.Request, token string) trust.Identity {
	if a.identity.Insecure() {
		return trust.Identity{Reason: "this manager runs without authentication: there is nobody to sign in"}
	}
	shows := &http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}, RemoteAddr: r.RemoteAddr}
	return a.identify(shows.WithContext(r.Context()))
}

// userByToken finds the user whose bearer token the header holds.
func userByToken(trusted *truststore.Trust, header string) (trust.Identity, error) {
	scheme, text, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "bearer") {
		return trust.Identity{}, errors.New("the Authorization header must be Bearer and a user's token")
	}
	secret, err := trust.ParseUser(strings.TrimSpace(text))
	if err != nil {
		return trust.Identity{}, fmt.Errorf("the bearer token %w", err)
	}
	return pki.ByToken(secret, trusted)
}

// onBehalf is the caller that another manager names, if that caller's credential is in force by what this manager knows:
// the other may not have heard of a revocation.
func (a *authenticator) onBehalf(ctx context.Context, encoded string, trusted *truststore.Trust) (trust.Identity, error) {
	named, err := trust.DecodeIdentity(encoded)
	if err != nil {
		return trust.Identity{}, err
	}
	caller, err := pki.InForce(named, trusted)
	if err != nil || sameBindings(caller, named) {
		return caller, err
	}
	// One of the two managers has not heard of a change of what the user may do.
	newest, err := a.store.Trust.Newest(ctx, trusted)
	if err != nil {
		return trust.Identity{}, err
	}
	return pki.InForce(named, newest)
}

// handed holds that only managers hand requests on.
func (a *authenticator) handed(r *http.Request) {
	if r.Header.Get(trust.ForwardedByHeader) == "" || a.identity.Insecure() {
		return
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		trusted, _ := a.store.Trust.Watch()
		if peer, err := a.identity.ByCertificate(r.TLS.PeerCertificates[0], trusted, a.now()); err == nil && peer.Kind == trust.Manager {
			return
		}
	}
	r.Header.Del(trust.ForwardedByHeader)
}

// certified says whether a client has shown a certificate that is in force.
func (a *authenticator) certified(conn *tls.Conn) bool {
	shown := conn.ConnectionState().PeerCertificates
	if len(shown) == 0 {
		return false
	}
	trusted, _ := a.store.Trust.Watch()
	_, err := a.identity.ByCertificate(shown[0], trusted, a.now())
	return err == nil
}
