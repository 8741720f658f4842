package pki

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/truststore"
	"github.com/weirlb/weir/internal/trust"
)

// admin is the name of the first user.
const admin = "admin"

// AdminFile is where the founding manager keeps the first user's configuration.
func AdminFile(dataDir string) string { return filepath.Join(dataDir, "admin.yaml") }

// writeAdmin makes the cluster's first user.
func (i *Identity) writeAdmin(ctx context.Context, into *store.Store, managerURL string) error {
	issue := adminIssue(into)
	if err := into.Trust.FoundAdmin(ctx, trust.Account{Name: admin, Bindings: []trust.Binding{{Tenant: trust.AllTenants, Role: trust.Admin}}}); err != nil {
		return err
	}
	if err := i.writeAdminFile(issue, managerURL); err != nil {
		return err
	}
	i.tellFirstSteps(managerURL)
	return nil
}

// tellFirstSteps says, once in the life of a cluster, what its operator needs to go on.
func (i *Identity) tellFirstSteps(managerURL string) {
	file := AdminFile(i.dir)
	i.log.Info("founded a cluster, and wrote the first user's configuration, which is a secret: weir --config FILE status says how it does, "+
		"weir --config FILE token create --role mux how a mux joins", "file", file)
	u, err := url.Parse(managerURL)
	if err != nil {
		return
	}
	if address, err := netip.ParseAddr(u.Hostname()); err == nil && address.IsLoopback() {
		i.log.Warn("no other machine reaches the API: set listen to an address of this one, and start again", "manager", managerURL)
	}
}

// adminIssue is of which issue the first user's certificate must be: there may have been a user of that name,
// if the CA is not the cluster's first.
func adminIssue(from *store.Store) uint32 {
	trusted, _ := from.Trust.Watch()
	return trusted.Principals.At(string(trust.User) + "/" + admin).Issue
}

// writeAdminFile writes the first user's configuration, with a new certificate.
func (i *Identity) writeAdminFile(number uint32, managers ...string) error {
	credential, err := Issue(i.authority, trust.Identity{Kind: trust.User, Name: admin, Issue: number}, nil, nil, trust.UserLife)
	if err != nil {
		return err
	}
	key, err := credential.KeyPEM()
	if err != nil {
		return err
	}
	text, err := rpc.Config{
		Managers: managers, CA: string(trust.EncodeCertificate(i.authority.Certificate)),
		Certificate: string(credential.CertificatePEM()), Key: string(key),
	}.Encode()
	if err != nil {
		return err
	}
	return trust.WriteFile(AdminFile(i.dir), text)
}

// KeepAdmin keeps the first user's configuration beside this manager's store good: it gets a new certificate, well
// before the end of the one that it has, and names managers that joined. One that is gone, is of somebody else, or was
// revoked is left alone.
func (i *Identity) KeepAdmin(trusted *truststore.Trust, managers []store.Manager, now time.Time) error {
	text, err := os.ReadFile(AdminFile(i.dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the first user's configuration: %w", err)
	}
	var config rpc.Config
	if err := yaml.Load(text, &config); err != nil {
		return fmt.Errorf("read %s: %w", AdminFile(i.dir), err)
	}
	access, err := config.Access()
	if err != nil {
		return fmt.Errorf("read %s: %w", AdminFile(i.dir), err)
	}
	if access.Current == nil || !access.CA.Equal(i.authority.Certificate) {
		return nil
	}
	has := access.Current()
	if !has.Identity.Is(trust.User, admin) {
		return nil
	}
	if _, err := InForce(has.Identity, trusted); err != nil {
		return nil //nolint:nilerr // whoever revoked it meant it
	}
	joined := false
	for _, m := range managers {
		joined = config.AddManagers(m.Address) || joined
	}
	if !joined && now.Before(has.RenewAt()) {
		return nil
	}
	return i.writeAdminFile(has.Identity.Issue, config.Managers...)
}
