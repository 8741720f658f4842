package trustservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/resource/query"
	"github.com/weirlb/weir/internal/store/truststore"
	"github.com/weirlb/weir/internal/trust"
)

// secured says that trust needs a manager that has a CA.
func (t *Service) secured() error {
	if t.Identity.Insecure() {
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("the manager runs with --insecure: it has no CA"))
	}
	return nil
}

// Join exchanges a join token for a certificate.
func (t *Service) Join(ctx context.Context, r *weirv1.JoinRequest) (*weirv1.JoinResponse, error) {
	if err := t.secured(); err != nil {
		return nil, err
	}
	refused := func(err error) error { return connect.NewError(connect.CodeUnauthenticated, err) }
	role, err := trust.ParseNode(r.GetRole())
	if err != nil {
		return nil, apierr.ToConnect(&model.FieldError{Field: "role", Reason: err.Error()})
	}
	if !model.ValidName(r.GetName()) {
		return nil, apierr.ToConnect(&model.FieldError{Field: "name", Reason: fmt.Sprintf("must be a DNS label, is %.70q", r.GetName())})
	}
	secret, err := trust.ParseJoin(r.GetToken())
	if err != nil {
		return nil, refused(fmt.Errorf("the join token %w", err))
	}
	request, err := trust.ParseRequest(r.GetRequest())
	if err != nil {
		return nil, apierr.ToConnect(&model.FieldError{Field: "request", Reason: err.Error()})
	}
	identity := trust.Identity{Kind: role, Name: r.GetName()}
	use := truststore.TokenUse{Token: secret.ID, Use: trust.Use{Name: r.GetName(), Key: trust.KeyHash(request)}}
	err = t.Store.Trust.Update(ctx, func(now *truststore.Trust) (change truststore.Change, err error) {
		token, known := now.Tokens.Get(secret.ID)
		if !known {
			return change, refused(errors.New("the join token is not valid: it was deleted, or has expired long ago"))
		}
		again := now.Uses.Has(use)
		if err := token.Admit(secret, role, identity.Name, again, now.Uses.Count(token.ID), t.Now()); err != nil {
			return change, refused(err)
		}
		principal, joined := now.Principals.Get(identity.String())
		identity.Issue = principal.Issue
		if again {
			if err := mayRepeat(principal, use); err != nil {
				return change, refused(err)
			}
			return change, nil
		}
		if joined && !principal.Revoked && token.Name != identity.Name {
			return change, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf(
				"%s has joined already: revoke it, or make a token for this name alone with weir token create --name %s", identity, identity.Name))
		}
		if joined && !principal.Revoked {
			identity.Issue++ // whoever had the name before has it no longer
		}
		change = now.NoteUse(use)
		change.Principals = []trust.Principal{{Kind: role, Name: identity.Name, Issue: identity.Issue, Joined: t.Now(), Use: use.Key, Addresses: token.Addresses}}
		return change, nil
	})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	certificate, err := t.Identity.Authority().Sign(identity, r.GetRequest(), t.Now(), t.life(role))
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	return &weirv1.JoinResponse{Certificate: certificate.Raw, Ca: t.Identity.Authority().Certificate.Raw}, nil
}

// mayRepeat says why a join may not be asked for again: the answer to it may have been lost, but much may have come since.
func mayRepeat(principal trust.Principal, use truststore.TokenUse) error {
	switch {
	case principal.Revoked:
		return fmt.Errorf("%s was revoked: make another token with weir token create", principal.Key())
	case principal.Use != "" && principal.Use != use.Key:
		return fmt.Errorf("another has joined as %s since: make another token with weir token create", principal.Key())
	}
	return nil
}

// life is how long a certificate lives.
func (t *Service) life(of trust.Kind) time.Duration {
	switch of {
	case trust.User:
		return trust.UserLife
	case trust.Manager:
		return trust.ManagerLife
	}
	return cmp.Or(t.CertificateLife, trust.NodeLife)
}

// RenewCertificate gives the caller a new certificate.
func (t *Service) RenewCertificate(ctx context.Context, r *weirv1.RenewCertificateRequest) (*weirv1.RenewCertificateResponse, error) {
	if err := t.secured(); err != nil {
		return nil, err
	}
	caller := trust.FromContext(ctx)
	switch {
	case caller.Method != trust.ByCertificate:
		return nil, connect.NewError(connect.CodePermissionDenied, fmt.Errorf("%s has no certificate to renew", caller))
	case caller.Kind == trust.User: // a copy of a key that was stolen would be good for ever
		return nil, connect.NewError(connect.CodePermissionDenied,
			fmt.Errorf("%s may not renew a user's certificate: an admin gives another with weir user rotate", caller))
	}
	if _, err := trust.ParseRequest(r.GetRequest()); err != nil {
		return nil, apierr.ToConnect(&model.FieldError{Field: "request", Reason: err.Error()})
	}
	certificate, err := t.Identity.Authority().Sign(caller, r.GetRequest(), t.Now(), t.life(caller.Kind))
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	t.Log.Info("certificate renewed", "identity", caller.String())
	return &weirv1.RenewCertificateResponse{Certificate: certificate.Raw}, nil
}

// WhoAmI says who the caller is.
func (t *Service) WhoAmI(ctx context.Context, _ *weirv1.WhoAmIRequest) (*weirv1.WhoAmIResponse, error) {
	caller := trust.FromContext(ctx)
	return &weirv1.WhoAmIResponse{
		Identity: caller.String(), Method: string(caller.Method), Bindings: bindingsToProto(caller.Bindings),
	}, nil
}

// ListPrincipals lists those that got a certificate, by role and name.
func (t *Service) ListPrincipals(_ context.Context, r *weirv1.ListPrincipalsRequest) (*weirv1.ListPrincipalsResponse, error) {
	page, err := query.NewPage(r)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	now, _ := t.Store.Trust.Watch()
	found := query.Collect[*weirv1.Principal](page)
	for key, principal := range now.Principals.From(page.After) {
		if !found.Add(key, func() *weirv1.Principal { return principalToProto(principal) }) {
			break
		}
	}
	return &weirv1.ListPrincipalsResponse{Principals: found.All, NextPageToken: found.Next}, nil
}

func principalToProto(p trust.Principal) *weirv1.Principal {
	return &weirv1.Principal{
		Role: string(p.Kind), Name: p.Name, Joined: timestamppb.New(p.Joined), Revoked: p.Revoked,
		Addresses: compile.PrefixTexts(p.Addresses),
	}
}

// RevokePrincipal ends what a principal proves itself by: its certificates, or its bearer token, and the join tokens that it had.
func (t *Service) RevokePrincipal(ctx context.Context, r *weirv1.RevokePrincipalRequest) (*weirv1.RevokePrincipalResponse, error) {
	role := trust.Kind(r.GetRole())
	if role != trust.User {
		var err error
		if role, err = trust.ParseNode(r.GetRole()); err != nil {
			return nil, apierr.ToConnect(&model.FieldError{Field: "role", Reason: err.Error()})
		}
	}
	key := string(role) + "/" + r.GetName()
	err := t.Store.Trust.Update(ctx, func(now *truststore.Trust) (truststore.Change, error) {
		principal, known := now.Principals.Get(key)
		change := truststore.Change{DeleteTokens: tokensOf(now, role, r.GetName())}
		if account, there := now.Accounts.Get(r.GetName()); role == trust.User && there {
			// The first user has joined by nothing.
			principal.Kind, principal.Name, known = role, r.GetName(), true
			if err := keepAdmin(now, r.GetName(), nil, t.Now()); err != nil {
				return truststore.Change{}, err
			}
			// A new CA forgets the principals, and not the accounts.
			account.Hash, account.Revoked = nil, account.Subject != ""
			change.Accounts = []trust.Account{account}
		}
		if managers := t.Store.State().Managers; role == trust.Manager && managers[r.GetName()].Name != "" {
			// Nor has a manager that founded the cluster, or shares an external etcd.
			principal.Kind, principal.Name, known = role, r.GetName(), true
			if len(managers) == 1 {
				return truststore.Change{}, connect.NewError(connect.CodeFailedPrecondition,
					fmt.Errorf("manager %s is the only one: let another join first", r.GetName()))
			}
		}
		if !known {
			return truststore.Change{}, notPrincipal(key)
		}
		if !principal.Revoked {
			principal.Issue, principal.Revoked = principal.Issue+1, true
		}
		change.Principals = []trust.Principal{principal}
		return change, nil
	})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	return &weirv1.RevokePrincipalResponse{}, nil
}

// tokensOf are the join tokens that a node is known to have had, and those that are for its name alone: with one of them
// it could join again.
func tokensOf(now *truststore.Trust, role trust.Kind, name string) (ids []string) {
	for id, token := range now.Tokens.All() {
		if token.Role == role && (token.Name == name || now.Uses.HasName(id, name)) {
			ids = append(ids, id)
		}
	}
	return ids
}

func notPrincipal(key string) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("%.80q never joined", key))
}

// CreateToken makes a join token.
func (t *Service) CreateToken(ctx context.Context, r *weirv1.CreateTokenRequest) (*weirv1.CreateTokenResponse, error) {
	if err := t.secured(); err != nil {
		return nil, err
	}
	secret, err := trust.NewJoinSecret()
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	life := trust.DefaultTokenLife
	if r.GetTtl() != nil {
		life = r.GetTtl().AsDuration()
	}
	role, err := trust.ParseNode(r.GetRole())
	if err != nil {
		return nil, apierr.ToConnect(&model.FieldError{Field: "role", Reason: err.Error()})
	}
	addresses, err := compile.ParsePrefixes("addresses", r.GetAddresses())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	now := t.Now()
	token := trust.JoinToken{
		ID: secret.ID, Hash: secret.Hash(), Role: role, Name: r.GetName(), Created: now, Expires: now.Add(life),
		Uses: cmp.Or(r.GetUses(), 1), By: trust.FromContext(ctx).String(),
		Addresses: addresses,
	}
	if err := token.Validate(); err != nil {
		return nil, apierr.ToConnect(err)
	}
	err = t.Store.Trust.Update(ctx, func(before *truststore.Trust) (truststore.Change, error) {
		return truststore.Change{Tokens: []trust.JoinToken{token}, DeleteTokens: longExpired(before, now)}, nil
	})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	return &weirv1.CreateTokenResponse{
		Token: tokenToProto(token, 0), Text: secret.Text(), CaHash: trust.Hash(t.Identity.Authority().Certificate),
	}, nil
}

// keepExpired is how long a token that expired can still be told from one that never was.
const keepExpired = 7 * 24 * time.Hour

func longExpired(now *truststore.Trust, at time.Time) []string {
	ids := now.LostTokens()
	for id, token := range now.Tokens.All() {
		if at.Sub(token.Expires) > keepExpired {
			ids = append(ids, id)
		}
	}
	return ids
}

func tokenToProto(token trust.JoinToken, used int) *weirv1.Token {
	return &weirv1.Token{
		Id: token.ID, Role: string(token.Role), Name: token.Name, Created: timestamppb.New(token.Created),
		Expires: timestamppb.New(token.Expires), Uses: token.Uses, Used: uint32(used), By: token.By,
		Addresses: compile.PrefixTexts(token.Addresses),
	}
}

// ListTokens lists join tokens, those that end first first.
func (t *Service) ListTokens(_ context.Context, r *weirv1.ListTokensRequest) (*weirv1.ListTokensResponse, error) {
	page, err := query.NewPage(r)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	now, _ := t.Store.Trust.Watch()
	key := func(token trust.JoinToken) string { return query.TimeKey(token.Expires, token.ID) }
	found := query.Collect[*weirv1.Token](page)
	for _, token := range slices.SortedFunc(now.Tokens.Values(), func(a, b trust.JoinToken) int { return cmp.Compare(key(a), key(b)) }) {
		if !found.Add(key(token), func() *weirv1.Token { return tokenToProto(token, now.Uses.Count(token.ID)) }) {
			break
		}
	}
	return &weirv1.ListTokensResponse{Tokens: found.All, NextPageToken: found.Next}, nil
}

// DeleteToken takes a join token back.
func (t *Service) DeleteToken(ctx context.Context, r *weirv1.DeleteTokenRequest) (*weirv1.DeleteTokenResponse, error) {
	err := t.Store.Trust.Update(ctx, func(now *truststore.Trust) (truststore.Change, error) {
		if !now.Tokens.Has(r.GetId()) {
			return truststore.Change{}, connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no token %.40q", r.GetId()))
		}
		return truststore.Change{DeleteTokens: []string{r.GetId()}}, nil
	})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	return &weirv1.DeleteTokenResponse{}, nil
}
