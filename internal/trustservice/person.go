package trustservice

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/truststore"
	"github.com/weirlb/weir/internal/trust"
	"github.com/weirlb/weir/internal/webui/oidc"
)

// maxPersons bounds the users that a provider has signed in.
const maxPersons = 5000

// SignIn returns the user of a person whom a provider has signed in, and whether that changed what is stored, also where it
// refuses: a user that comes the first time is made, and the roles of one are those of its groups now. Whoever is in no
// group that may do something is refused, and the sessions that it has may do nothing from then on. A user keeps the name of
// its first sign-in, whatever the provider calls it later. It is a user as others are: it is listed, and who revokes or
// deletes it ends its sessions at every manager.
func (t *Service) SignIn(ctx context.Context, who oidc.Person) (user trust.Identity, changed bool, err error) {
	var without error // of a person that has no role
	err = t.Store.Trust.Update(ctx, func(now *truststore.Trust) (change truststore.Change, err error) {
		was, known := ofSubject(now, who.Subject)
		account := trust.Account{Name: who.Name, Subject: who.Subject}
		if known {
			account = was
		}
		user, changed, without = trust.Identity{Kind: trust.User, Name: account.Name, Method: trust.ByProvider}, false, nil
		// A tenant that is not there may be made later, for others.
		account.Bindings = slices.DeleteFunc(slices.Clone(who.Bindings), func(b trust.Binding) bool {
			return b.Tenant != trust.AllTenants && b.Tenant != model.DefaultTenant && !now.Tenants.Has(b.Tenant)
		})
		principal := now.Principals.At(user.String())
		if len(account.Bindings) == 0 {
			without = noRole(user)
		} else if err := checkAccount(now, account); err != nil {
			return change, err
		}
		taken := now.Accounts.Has(who.Name)
		switch {
		case known && (was.Revoked || principal.Revoked):
			return change, connect.NewError(connect.CodePermissionDenied,
				fmt.Errorf("%s was revoked: an admin deletes the user to let it sign in again", user))
		case !known && without != nil:
			return change, without
		case !known && taken:
			return change, connect.NewError(connect.CodePermissionDenied, fmt.Errorf("%s is another user of this cluster", user))
		case !known && persons(now) >= maxPersons:
			return change, connect.NewError(connect.CodeResourceExhausted,
				errors.New("too many users have signed in by the provider: an admin deletes some with weir user delete"))
		case known && slices.Equal(was.Bindings, account.Bindings):
			user.Issue, user.Bindings = principal.Issue, account.Bindings
			return change, nil
		case !known:
			if principal.Name != "" { // what a user of this name had before stays void
				principal.Issue++
			}
			principal.Kind, principal.Name, principal.Joined, principal.Revoked = trust.User, who.Name, t.Now(), false
			change.Principals = []trust.Principal{principal}
		}
		changed, change.Accounts = true, []trust.Account{account}
		user.Issue, user.Bindings = principal.Issue, account.Bindings
		return change, nil
	})
	if err != nil {
		return trust.Identity{}, false, apierr.ToConnect(err)
	}
	return user, changed, without
}

// noRole is the error of a person whose groups may do nothing.
func noRole(user trust.Identity) error {
	return connect.NewError(connect.CodePermissionDenied,
		fmt.Errorf("%s is in no group that may do something here: ask who runs the managers, --oidc-group names the groups", user))
}

// ofSubject is the account of a person, whatever its name.
func ofSubject(now *truststore.Trust, subject string) (account trust.Account, known bool) {
	for account := range now.Accounts.Values() {
		if account.Subject != "" && account.Subject == subject {
			return account, true
		}
	}
	return account, false
}

func persons(now *truststore.Trust) (n int) {
	for account := range now.Accounts.Values() {
		if account.Subject != "" {
			n++
		}
	}
	return n
}

// ofProvider refuses what is the provider's to say.
func ofProvider(name, why string) error {
	return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("%s is signed in by the OpenID Connect provider, and %s: change it there", name, why))
}
