package oidc

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirlb/weir/internal/trust"
)

// CallbackPath is where a provider leads browsers back to.
const CallbackPath = "/ui/oidc/callback"

// Config says which provider signs users in, and what they may do. Without an issuer there is none.
type Config struct {
	Issuer      string
	ClientID    string
	SecretFile  string   // of the client; empty: a public client, which PKCE alone protects
	RedirectURL string   // empty: CallbackPath of the manager's address
	CAFile      string   // empty: the machine's CAs
	Scopes      []string // beside openid
	NameClaim   string
	GroupsClaim string
	Groups      []string // GROUP=ROLE or GROUP=ROLE@TENANT
}

// Flags adds the flags that say it.
func (c *Config) Flags(flags *pflag.FlagSet) {
	flags.StringVar(&c.Issuer, "oidc-issuer", "", "URL of an OpenID Connect provider that signs users of the web page in (default: none)")
	flags.StringVar(&c.ClientID, "oidc-client-id", "", "id of this cluster as a client of the provider")
	flags.StringVar(&c.SecretFile, "oidc-client-secret-file", "", "file with the client's secret, read at each sign-in (default: a public client)")
	flags.StringVar(&c.RedirectURL, "oidc-redirect-url", "",
		"URL that the provider leads browsers back to, its path "+CallbackPath+" (default: by --advertise)")
	flags.StringVar(&c.CAFile, "oidc-ca-file", "", "file with the provider's CA, or several (default: the machine's CAs)")
	flags.StringSliceVar(&c.Scopes, "oidc-scopes", []string{"profile", "email"}, "scopes to ask for beside openid")
	flags.StringVar(&c.NameClaim, "oidc-name-claim", "preferred_username", "claim that users are named after")
	flags.StringVar(&c.GroupsClaim, "oidc-groups-claim", "groups", "claim that lists a user's groups")
	flags.StringArrayVar(&c.Groups, "oidc-group", nil, "what a group may do, as GROUP=ROLE in all tenants or GROUP=ROLE@TENANT; repeatable")
}

// maxGroups bounds the groups that have roles.
const maxGroups = 1000

// check says what is wrong, and returns what groups may do.
func (c *Config) check() (map[string][]trust.Binding, error) {
	issuer, err := url.Parse(c.Issuer)
	switch {
	case err != nil || !secure(issuer) || issuer.RawQuery != "" || issuer.Fragment != "":
		return nil, fmt.Errorf("read --oidc-issuer: must be https://HOST, as the provider writes it, is %.200q", c.Issuer)
	case c.ClientID == "":
		return nil, errors.New("--oidc-client-id is missing: register this cluster with the provider")
	case len(c.Groups) == 0:
		return nil, errors.New("--oidc-group is missing: without it nobody may do anything")
	case len(c.Groups) > maxGroups:
		return nil, fmt.Errorf("read --oidc-group: at most %d groups have roles", maxGroups)
	}
	back, err := url.Parse(c.RedirectURL)
	if err != nil || back.Scheme != "https" || back.Hostname() == "" || back.Path != CallbackPath || back.RawQuery != "" || unspecified(back.Hostname()) {
		return nil, fmt.Errorf("read --oidc-redirect-url: must be https://HOST%s, by the name that browsers open this manager by, is %.200q", CallbackPath, c.RedirectURL)
	}
	roles := map[string][]trust.Binding{}
	for _, text := range c.Groups {
		group, binding, err := parseGroup(text)
		if err != nil {
			return nil, fmt.Errorf("read --oidc-group %.200q: %w", text, err)
		}
		if !slices.Contains(roles[group], binding) {
			roles[group] = append(roles[group], binding)
		}
	}
	return roles, nil
}

// parseGroup reads GROUP=ROLE@TENANT. Names of groups may hold "=" themselves.
func parseGroup(text string) (group string, b trust.Binding, err error) {
	at := strings.LastIndexByte(text, '=')
	if at <= 0 {
		return "", b, errors.New("must be GROUP=ROLE or GROUP=ROLE@TENANT")
	}
	role, tenant, named := strings.Cut(text[at+1:], "@")
	if !named {
		tenant = trust.AllTenants
	}
	b = trust.Binding{Role: trust.Role(role), Tenant: tenant}
	return text[:at], b, b.Validate()
}

func unspecified(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsUnspecified()
}

// secure says whether nobody else reads what goes there: by TLS, or on loopback.
func secure(u *url.URL) bool {
	a, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" && u.Hostname() != "" || u.Scheme == "http" && err == nil && a.IsLoopback()
}

// authorities are the CAs that sign the provider's certificate; nil: the machine's.
func (c *Config) authorities() (*x509.CertPool, error) {
	if c.CAFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read --oidc-ca-file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read --oidc-ca-file: there is no certificate in %s", c.CAFile)
	}
	return pool, nil
}

// secret is the client's; empty: there is none.
func (c *Config) secret() (string, error) {
	if c.SecretFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(c.SecretFile)
	if err != nil {
		return "", fmt.Errorf("read --oidc-client-secret-file: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
