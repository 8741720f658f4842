package trustservice

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/resource/query"
	"github.com/weirlb/weir/internal/store/auditlog"
	"github.com/weirlb/weir/internal/store/truststore"
	"github.com/weirlb/weir/internal/trust"
)

func bindingsToProto(bindings []trust.Binding) []*weirv1.Binding {
	var list []*weirv1.Binding
	for _, b := range bindings {
		list = append(list, &weirv1.Binding{Tenant: b.Tenant, Role: string(b.Role)})
	}
	return list
}

func bindingsFromProto(list []*weirv1.Binding) []trust.Binding {
	var bindings []trust.Binding
	for _, b := range list {
		bindings = append(bindings, trust.Binding{Tenant: b.GetTenant(), Role: trust.Role(b.GetRole())})
	}
	return bindings
}

func userToProto(account trust.Account) *weirv1.User {
	return &weirv1.User{Name: account.Name, Bindings: bindingsToProto(account.Bindings), Method: string(account.Method())}
}

// checkAccount holds that the account is valid and its tenants are there.
func checkAccount(now *truststore.Trust, account trust.Account) error {
	if err := account.Validate(); err != nil {
		return err
	}
	for i, b := range account.Bindings {
		if b.Tenant != trust.AllTenants && b.Tenant != model.DefaultTenant && !now.Tenants.Has(b.Tenant) {
			return &model.FieldError{Field: fmt.Sprintf("bindings[%d].tenant", i), Reason: fmt.Sprintf("there is no tenant %s: apply it first", b.Tenant)}
		}
	}
	return nil
}

// credentials are what a user proves itself by from now on.
type credentials struct {
	hash        []byte
	token       string
	certificate []byte
	principal   trust.Principal
}

// credentials makes a bearer token, or signs the request if there is one. All those before are void.
func (t *Service) credentials(now *truststore.Trust, name string, request []byte) (c credentials, err error) {
	identity := trust.Identity{Kind: trust.User, Name: name}
	c.principal = now.Principals.At(identity.String())
	// The first user has a certificate, and has joined by nothing.
	if now.Accounts.Has(name) || c.principal.Name != "" {
		c.principal.Issue++
	}
	c.principal.Kind, c.principal.Name = trust.User, name
	c.principal.Joined, c.principal.Revoked = t.Now(), false
	if len(request) > 0 {
		identity.Issue = c.principal.Issue
		certificate, err := t.Identity.Authority().Sign(identity, request, t.Now(), trust.UserLife)
		if err != nil {
			return c, &model.FieldError{Field: "request", Reason: err.Error()}
		}
		c.certificate = certificate.Raw
		return c, nil
	}
	secret, err := trust.NewUserSecret(name)
	c.hash, c.token = secret.Hash(), secret.Text()
	return c, err
}

// CreateUser makes a user.
func (t *Service) CreateUser(ctx context.Context, r *weirv1.CreateUserRequest) (*weirv1.CreateUserResponse, error) {
	if err := t.secured(); err != nil {
		return nil, err
	}
	account := trust.Account{Name: r.GetUser().GetName(), Bindings: bindingsFromProto(r.GetUser().GetBindings())}
	var made credentials
	err := t.Store.Trust.Update(ctx, func(now *truststore.Trust) (change truststore.Change, err error) {
		if err := checkAccount(now, account); err != nil {
			return change, err
		}
		if now.Accounts.Has(account.Name) {
			return change, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("there is a user %s already", account.Name))
		}
		if made, err = t.credentials(now, account.Name, r.GetRequest()); err != nil {
			return change, err
		}
		account.Hash = made.hash
		return truststore.Change{Accounts: []trust.Account{account}, Principals: []trust.Principal{made.principal}}, nil
	})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	return &weirv1.CreateUserResponse{
		User: userToProto(account), Token: made.token, Certificate: made.certificate, Ca: t.Identity.Authority().Certificate.Raw,
	}, nil
}

// RotateUser gives a user other credentials.
func (t *Service) RotateUser(ctx context.Context, r *weirv1.RotateUserRequest) (*weirv1.RotateUserResponse, error) {
	if err := t.secured(); err != nil {
		return nil, err
	}
	var made credentials
	err := t.Store.Trust.Update(ctx, func(now *truststore.Trust) (change truststore.Change, err error) {
		account, known := now.Accounts.Get(r.GetName())
		switch {
		case !known:
			return change, noUser(r.GetName())
		case account.Subject != "":
			return change, ofProvider(account.Name, "has no credential of this cluster")
		}
		if made, err = t.credentials(now, account.Name, r.GetRequest()); err != nil {
			return change, err
		}
		account.Hash = made.hash
		return truststore.Change{Accounts: []trust.Account{account}, Principals: []trust.Principal{made.principal}}, nil
	})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	return &weirv1.RotateUserResponse{Token: made.token, Certificate: made.certificate, Ca: t.Identity.Authority().Certificate.Raw}, nil
}

func noUser(name string) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no user %.64q", name))
}

// UpdateUser replaces what a user may do.
func (t *Service) UpdateUser(ctx context.Context, r *weirv1.UpdateUserRequest) (*weirv1.UpdateUserResponse, error) {
	var account trust.Account
	err := t.Store.Trust.Update(ctx, func(now *truststore.Trust) (change truststore.Change, err error) {
		var known bool
		if account, known = now.Accounts.Get(r.GetName()); !known {
			return change, noUser(r.GetName())
		}
		if account.Subject != "" {
			return change, ofProvider(account.Name, "has the roles of its groups")
		}
		account.Bindings = bindingsFromProto(r.GetBindings())
		if err := checkAccount(now, account); err != nil {
			return change, err
		}
		return truststore.Change{Accounts: []trust.Account{account}}, keepAdmin(now, account.Name, account.Bindings, t.Now())
	})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	return &weirv1.UpdateUserResponse{User: userToProto(account)}, nil
}

// ListUsers lists users by name.
func (t *Service) ListUsers(_ context.Context, r *weirv1.ListUsersRequest) (*weirv1.ListUsersResponse, error) {
	page, err := query.NewPage(r)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	now, _ := t.Store.Trust.Watch()
	found := query.Collect[*weirv1.User](page)
	for name, account := range now.Accounts.From(page.After) {
		more := found.Add(name, func() *weirv1.User {
			user := userToProto(account)
			if account.Revoked || now.HasRevoked(trust.User, name) {
				user.Method = "revoked"
			}
			return user
		})
		if !more {
			break
		}
	}
	return &weirv1.ListUsersResponse{Users: found.All, NextPageToken: found.Next}, nil
}

// DeleteUser ends a user and all its credentials.
func (t *Service) DeleteUser(ctx context.Context, r *weirv1.DeleteUserRequest) (*weirv1.DeleteUserResponse, error) {
	err := t.Store.Trust.Update(ctx, func(now *truststore.Trust) (change truststore.Change, err error) {
		if !now.Accounts.Has(r.GetName()) {
			return change, noUser(r.GetName())
		}
		principal := now.Principals.At(string(trust.User) + "/" + r.GetName())
		principal.Kind, principal.Name, principal.Issue, principal.Revoked = trust.User, r.GetName(), principal.Issue+1, true
		return truststore.Change{DeleteAccounts: []string{r.GetName()}, Principals: []trust.Principal{principal}}, keepAdmin(now, r.GetName(), nil, t.Now())
	})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	return &weirv1.DeleteUserResponse{}, nil
}

// keepAdmin holds that somebody is left who may change who may do what, and can still prove who they are, when the user
// of that name has these bindings.
func keepAdmin(now *truststore.Trust, name string, bindings []trust.Binding, at time.Time) error {
	isAdmin := func(bindings []trust.Binding) bool {
		return (trust.Identity{Bindings: bindings}).May(trust.Admin, trust.AllTenants)
	}
	if isAdmin(bindings) || now.HasRevoked(trust.User, name) || !isAdmin(now.Accounts.At(name).Bindings) {
		return nil // as many are left as before
	}
	for other, account := range now.Accounts.All() {
		if other != name && isAdmin(account.Bindings) && canProve(now, account, at) {
			return nil
		}
	}
	return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("%s is the last admin of the cluster: make another first", name))
}

// canProve says whether the user has a credential that is in force.
func canProve(now *truststore.Trust, account trust.Account, at time.Time) bool {
	principal := now.Principals.At(string(trust.User) + "/" + account.Name)
	switch {
	case principal.Revoked:
		return false
	case account.Subject != "": // the provider may sign it in no more
		return false
	case len(account.Hash) > 0, principal.Joined.IsZero(): // the first user's certificate is kept by its manager
		return true
	}
	return at.Before(principal.Joined.Add(trust.UserLife))
}

// ListAudit lists what was changed and what was refused, the newest first.
func (t *Service) ListAudit(ctx context.Context, r *weirv1.ListAuditRequest) (*weirv1.ListAuditResponse, error) {
	limit := int(r.GetLimit())
	switch {
	case limit == 0:
		limit = defaultAudit
	case limit > maxAudit:
		return nil, apierr.ToConnect(&model.FieldError{Field: "limit", Reason: fmt.Sprintf("must be at most %d, is %d", maxAudit, limit)})
	}
	q := auditlog.Query{Limit: limit, Refused: r.GetRefused(), Identity: r.GetIdentity(), Subject: r.GetSubject()}
	if r.GetSince() != nil {
		q.Since = r.GetSince().AsTime()
	}
	entries, err := t.Store.Audit.List(ctx, q)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	return &weirv1.ListAuditResponse{Entries: auditToProto(entries)}, nil
}
