package trust

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/weirlb/weir/internal/model"
)

// Kind is what somebody is.
type Kind string

// The kinds. Those of nodes are the roles that tokens are made for.
const (
	Mux     Kind = "mux"
	Host    Kind = "host"
	Switch  Kind = "switch"
	Manager Kind = "manager"
	User    Kind = "user"
)

// ParseNode reads the kind of a node. "agent" is another word for host.
func ParseNode(s string) (Kind, error) {
	switch k := Kind(s); k {
	case Mux, Host, Switch, Manager:
		return k, nil
	case "agent":
		return Host, nil
	}
	return "", fmt.Errorf("must be mux, agent, switch or manager, is %q", s)
}

// Method is how somebody proved who it is.
type Method string

// The methods.
const (
	ByCertificate Method = "certificate"
	ByToken       Method = "token"
	ByProvider    Method = "oidc"     // it has signed in to the web page by a provider of OpenID Connect
	Insecure      Method = "insecure" // the manager runs without authentication: everybody may do everything
)

// Identity is who makes a call. The zero one is nobody.
type Identity struct {
	Kind     Kind      `json:"kind,omitempty"`
	Name     string    `json:"name,omitempty"`
	Method   Method    `json:"method,omitempty"`
	Issue    uint32    `json:"issue,omitempty"`    // of the certificate, or of the bearer token
	From     string    `json:"from,omitempty"`     // address and port that the call came from
	Bindings []Binding `json:"bindings,omitempty"` // of a user
	Reason   string    `json:"reason,omitempty"`   // of nobody: why what was shown is not accepted
}

// Anonymous says whether it is nobody.
func (i Identity) Anonymous() bool { return i.Kind == "" }

// String is "mux/mux1", or "nobody".
func (i Identity) String() string {
	if i.Anonymous() {
		return "nobody"
	}
	return string(i.Kind) + "/" + i.Name
}

// Is says whether it is that node.
func (i Identity) Is(kind Kind, name string) bool { return i.Kind == kind && i.Name == name }

// scheme of the URI that names an identity in a certificate: weir://mux/mux1.
const scheme = "weir"

func (i Identity) uri() *url.URL {
	return &url.URL{Scheme: scheme, Host: string(i.Kind), Path: "/" + i.Name}
}

// ParseURI reads the identity that a certificate names.
func ParseURI(u *url.URL) (Identity, error) {
	name, slash := strings.CutPrefix(u.Path, "/")
	i := Identity{Kind: Kind(u.Host), Name: name}
	switch {
	case u.Scheme != scheme || !slash || i.uri().String() != u.String():
		return Identity{}, fmt.Errorf("%.80q names nobody: must be like weir://mux/mux1", u)
	case i.Kind != Mux && i.Kind != Host && i.Kind != Switch && i.Kind != Manager && i.Kind != User:
		return Identity{}, fmt.Errorf("%.80q names nobody: a certificate is of a mux, host, switch, manager or user", u)
	case !model.ValidName(name):
		return Identity{}, fmt.Errorf("%.80q names nobody: the name must be a DNS label", u)
	}
	return i, nil
}

// OnBehalfHeader carries, from manager to manager, who makes the call that is forwarded.
const OnBehalfHeader = "Weir-On-Behalf-Of"

// ForwardedByHeader marks a request that another manager forwarded: it is not forwarded again.
const ForwardedByHeader = "Weir-Forwarded-By"

// maxEncoded bounds the header, in bytes.
const maxEncoded = 16 << 10

// Encode writes i for OnBehalfHeader.
func (i Identity) Encode() (string, error) {
	data, err := json.Marshal(i)
	if err != nil {
		return "", fmt.Errorf("write the identity %s: %w", i, err)
	}
	return base64.RawURLEncoding.EncodeToString(data), nil
}

// DecodeIdentity reads what Encode wrote.
func DecodeIdentity(s string) (Identity, error) {
	var i Identity
	if len(s) > maxEncoded {
		return i, errors.New("read the identity: is too long")
	}
	data, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return i, fmt.Errorf("read the identity: %w", err)
	}
	if err := json.Unmarshal(data, &i); err != nil {
		return Identity{}, fmt.Errorf("read the identity: %w", err)
	}
	if _, err := ParseURI(i.uri()); err != nil {
		return Identity{}, fmt.Errorf("read the identity: %w", err)
	}
	// Nobody calls a manager that has TLS without having shown something.
	if i.Method != ByCertificate && i.Method != ByToken && i.Method != ByProvider {
		return Identity{}, fmt.Errorf("read the identity: %q is no proof of it", i.Method)
	}
	for _, b := range i.Bindings {
		if err := b.Validate(); err != nil {
			return Identity{}, fmt.Errorf("read the identity: %w", err)
		}
	}
	return i, nil
}

type contextKey struct{}

// WithIdentity returns a context of a call that i makes.
func WithIdentity(ctx context.Context, i Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, i)
}

// CallerName is the name of who makes the call, for records and events; empty: nobody is known by name.
func CallerName(ctx context.Context) string {
	if i := FromContext(ctx); !i.Anonymous() && i.Method != Insecure {
		return i.String()
	}
	return ""
}

// FromContext is who makes the call: nobody if the context says nothing.
func FromContext(ctx context.Context) Identity {
	i, _ := ctx.Value(contextKey{}).(Identity)
	return i
}
