package oidc

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/weirlb/weir/internal/inflight"
	"github.com/weirlb/weir/internal/tokenbucket"
	"github.com/weirlb/weir/internal/trust"
)

// Bounds of what strangers have a manager do, and of what a provider sends.
const (
	MaxAttempt  = 10 * time.Minute // from the beginning of a sign-in to its end
	askTime     = 10 * time.Second // for all that is asked of the provider in one step
	maxAnswer   = 1 << 20          // bytes of one of its answers
	maxAsking   = 8                // steps under way that ask it
	askRate     = 5                // of them a second
	askBurst    = 50
	sourceMost  = 2 // codes under way that one source brings
	sourceRate  = 1 // of them a second
	sourceBurst = 10
	rediscover  = time.Hour // after which its addresses are read again
	maxSealed   = 1024      // bytes of the cookie
	maxTokenAge = 10 * time.Minute
)

// Provider signs users in.
type Provider struct {
	cfg    Config
	roles  map[string][]trust.Binding // by group
	client *http.Client
	sealer cipher.AEAD
	now    func() time.Time
	rates  tokenbucket.Buckets // by what is asked
	asking inflight.Limit

	sources   tokenbucket.Buckets // by where codes come from
	finishing inflight.Limit

	mu    sync.Mutex
	found *oidc.Provider
	since time.Time
}

// New returns a Provider, which asks nothing of the provider yet. address is the manager's, for a redirect URL that is not
// set. Without an issuer it is nil.
func New(cfg Config, address string, now func() time.Time) (*Provider, error) {
	if cfg.Issuer == "" {
		return nil, nil
	}
	cfg.RedirectURL = cmp.Or(cfg.RedirectURL, "https://"+address+CallbackPath)
	roles, err := cfg.check()
	if err != nil {
		return nil, err
	}
	roots, err := cfg.authorities()
	if err != nil {
		return nil, err
	}
	if _, err := cfg.secret(); err != nil {
		return nil, err
	}
	var key [32]byte
	rand.Read(key[:]) // it never fails
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	sealer, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
		MaxConnsPerHost: maxAsking, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
	}
	client := &http.Client{Timeout: askTime, Transport: bounded{transport}, CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("the provider leads elsewhere: write its own URL into --oidc-issuer")
	}}
	return &Provider{cfg: cfg, roles: roles, client: client, sealer: sealer, now: now}, nil
}

// bounded is an http.RoundTripper whose answers end at maxAnswer bytes.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if !secure(r.URL) {
		return nil, fmt.Errorf("the provider names %.200q, which is not https", r.URL.Redacted())
	}
	answer, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	answer.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(answer.Body, maxAnswer), answer.Body}
	return answer, nil
}

// Name is the host of the provider, for users.
func (p *Provider) Name() string {
	u, err := url.Parse(p.cfg.Issuer)
	if err != nil {
		return p.cfg.Issuer
	}
	return u.Host
}

// Origin is the page's, to which the provider leads back.
func (p *Provider) Origin() *url.URL {
	u, err := url.Parse(p.cfg.RedirectURL)
	if err != nil { // it was checked
		return &url.URL{}
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}
}

// IsAt says whether the provider leads back to a host, and port, as a browser says it: in lower case, and without TLS's own port.
func (p *Provider) IsAt(host string) bool {
	return asBrowsersSay(p.Origin().Host) == asBrowsersSay(host)
}

func asBrowsersSay(host string) string { return strings.TrimSuffix(strings.ToLower(host), ":443") }

// attempt is a sign-in under way, as its browser keeps it.
type attempt struct {
	State    string    `json:"s"`
	Nonce    string    `json:"n"`
	Verifier string    `json:"v"`
	Begun    time.Time `json:"b"`
}

// Begin returns where a browser goes to sign in, and a cookie's value that it brings to the end.
func (p *Provider) Begin(ctx context.Context) (to, cookie string, err error) {
	found := p.known()
	if found == nil {
		ctx, done, err := p.enter(ctx, toDiscover)
		if err != nil {
			return "", "", err
		}
		defer done()
		if found, err = p.discover(ctx); err != nil {
			return "", "", err
		}
	}
	a := attempt{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Begun: p.now().UTC()}
	text, err := json.Marshal(a)
	if err != nil {
		return "", "", err
	}
	to = p.oauth(found, "").AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier))
	return to, base64.RawURLEncoding.EncodeToString(p.sealer.Seal(nil, nil, text, nil)), nil
}

func (p *Provider) open(cookie string) (a attempt, err error) {
	refused := func(why string) error {
		return connect.NewError(connect.CodeUnauthenticated, errors.New(why+": sign in again"))
	}
	sealed, err := base64.RawURLEncoding.DecodeString(cookie)
	if err != nil || cookie == "" || len(cookie) > maxSealed {
		return a, refused("this browser has no sign-in under way")
	}
	text, err := p.sealer.Open(nil, nil, sealed, nil)
	if err != nil { // another manager's, or of one that was restarted
		return a, refused("this manager does not know of the sign-in")
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, refused("this manager does not know of the sign-in")
	}
	if age := p.now().Sub(a.Begun); age < 0 || age > MaxAttempt {
		return a, refused("the sign-in took too long")
	}
	return a, nil
}

// Finish returns who has signed in: the provider has led the browser back with answer, and the browser, which is of a source
// as limits.SourceOf, has brought the cookie of Begin. What it refuses with ResourceExhausted may be tried again as it is.
func (p *Provider) Finish(ctx context.Context, source string, answer url.Values, cookie string) (Person, error) {
	a, err := p.open(cookie)
	if err != nil {
		return Person{}, err
	}
	refused := func(format string, args ...any) (Person, error) {
		return Person{}, connect.NewError(connect.CodeUnauthenticated, fmt.Errorf(format, args...))
	}
	switch {
	case subtle.ConstantTimeCompare([]byte(answer.Get("state")), []byte(a.State)) != 1:
		return refused("the answer is of another sign-in: sign in again")
	case answer.Get("error") != "":
		return refused("the provider has refused: %.100q %.200q", answer.Get("error"), answer.Get("error_description"))
	case answer.Has("iss") && answer.Get("iss") != p.cfg.Issuer: // RFC 9207
		return refused("the answer is of another provider, %.100q", answer.Get("iss"))
	case answer.Get("code") == "":
		return refused("the provider has sent no code: sign in again")
	}
	if !p.admit(source) {
		return Person{}, errBusy
	}
	leave := p.finishing.Acquire(source, 0, sourceMost)
	if leave == nil {
		return Person{}, errBusy
	}
	defer leave()
	ctx, done, err := p.enter(ctx, toExchange)
	if err != nil {
		return Person{}, err
	}
	defer done()
	found, err := p.discover(ctx)
	if err != nil {
		return Person{}, err
	}
	token, err := p.exchange(ctx, found, answer.Get("code"), a)
	if err != nil {
		return Person{}, err
	}
	return p.person(token)
}

// exchange gives the code for an ID token, and holds that it is of this sign-in.
func (p *Provider) exchange(ctx context.Context, found *oidc.Provider, code string, a attempt) (*oidc.IDToken, error) {
	secret, err := p.cfg.secret()
	if err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	tokens, err := p.oauth(found, secret).Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	var answered *oauth2.RetrieveError
	switch {
	case errors.As(err, &answered) && answered.ErrorCode != "":
		return nil, connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("the provider refuses the code: %.100q: sign in again", answered.ErrorCode))
	case err != nil:
		return nil, p.unavailable(err)
	}
	raw, ok := tokens.Extra("id_token").(string)
	if !ok {
		return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("the provider has sent no ID token: may the client ask for the scope openid?"))
	}
	token, err := found.Verifier(&oidc.Config{ClientID: p.cfg.ClientID, Now: p.now}).Verify(ctx, raw)
	refused := func(err error) error {
		return connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("the provider's ID token is refused: %w", err))
	}
	if err != nil {
		return nil, refused(err)
	}
	var claims struct {
		Party string `json:"azp"`
	}
	switch err := token.Claims(&claims); {
	case err != nil:
		return nil, refused(err)
	case subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(a.Nonce)) != 1:
		return nil, refused(errors.New("it is of another sign-in"))
	case claims.Party != "" && claims.Party != p.cfg.ClientID, claims.Party == "" && len(token.Audience) > 1:
		return nil, refused(errors.New("it was made for another client"))
	case p.now().Sub(token.IssuedAt) > maxTokenAge:
		return nil, refused(errors.New("it was made long ago: is a clock wrong?"))
	}
	return token, nil
}

// What is asked of the provider. Each has a bucket of its own: anybody can have a sign-in begin, and those who come to its
// end do not wait for that.
const (
	toDiscover = "discovery"
	toExchange = "exchange"
)

var errBusy = connect.NewError(connect.CodeResourceExhausted, errors.New("too many users sign in at once: load this page again in a moment"))

// admit says whether a source may bring a code now: one that brings many leaves others their part of the rate.
func (p *Provider) admit(source string) bool {
	return p.sources.Take(source, sourceRate, sourceBurst, 1, p.now()) == 0
}

// enter takes a place of a step that asks the provider, and bounds its time.
func (p *Provider) enter(ctx context.Context, what string) (context.Context, func(), error) {
	leave := p.asking.Acquire("", maxAsking, 0)
	if leave == nil {
		return nil, nil, errBusy
	}
	if p.rates.Take(what, askRate, askBurst, 1, p.now()) > 0 {
		leave()
		return nil, nil, errBusy
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.client), askTime)
	return ctx, func() { cancel(); leave() }, nil
}

// known are the provider's addresses, if they were read lately.
func (p *Provider) known() *oidc.Provider {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found == nil || p.now().Sub(p.since) >= rediscover {
		return nil
	}
	return p.found
}

// discover returns the provider's addresses and keys. Its newest keys are read when a token is signed by one that is not
// known.
func (p *Provider) discover(ctx context.Context) (*oidc.Provider, error) {
	if found := p.known(); found != nil {
		return found, nil
	}
	found, err := oidc.NewProvider(ctx, p.cfg.Issuer)
	if err != nil {
		return nil, p.unavailable(err)
	}
	if to, err := url.Parse(found.Endpoint().AuthURL); err != nil || !secure(to) {
		return nil, p.unavailable(fmt.Errorf("it has users sign in at %.200q, which is not https", found.Endpoint().AuthURL))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.found, p.since = found, p.now()
	return found, nil
}

func (p *Provider) unavailable(err error) error {
	return connect.NewError(connect.CodeUnavailable, fmt.Errorf("the provider %s does not answer as it should: %.500s: sign in by a token, or try again", p.Name(), err.Error()))
}

func (p *Provider) oauth(found *oidc.Provider, secret string) *oauth2.Config {
	endpoint := found.Endpoint()
	endpoint.AuthStyle = authStyle(found, secret)
	return &oauth2.Config{
		ClientID: p.cfg.ClientID, ClientSecret: secret, Endpoint: endpoint, RedirectURL: p.cfg.RedirectURL,
		Scopes: append([]string{oidc.ScopeOpenID}, p.cfg.Scopes...),
	}
}

// authStyle is how the client shows its secret: without it package oauth2 tries both ways, each time that a code is refused.
func authStyle(found *oidc.Provider, secret string) oauth2.AuthStyle {
	var takes struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := found.Claims(&takes); err != nil || secret != "" && (len(takes.Methods) == 0 || slices.Contains(takes.Methods, "client_secret_basic")) {
		return oauth2.AuthStyleInHeader
	}
	return oauth2.AuthStyleInParams
}
