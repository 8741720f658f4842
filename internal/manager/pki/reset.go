package pki

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/trust"
)

// resetFile asks for a reset of the first user. Whoever can write it can read the manager's key too, which may do everything.
func resetFile(dir string) string {
	return filepath.Join(filepath.Dir(trust.NodeFile(dir)), "admin-reset")
}

// RequestAdminReset has the manager of a data directory reset the first user when it starts next.
func RequestAdminReset(dataDir string) error {
	credential, err := trust.LoadCredential(dataDir)
	if err != nil {
		return fmt.Errorf("reset the administrator: %w: name the data directory of a manager with --data-dir", err)
	}
	if credential.Identity.Kind != trust.Manager {
		return fmt.Errorf("reset the administrator: %s is the data directory of %s: name that of a manager with --data-dir", dataDir, credential.Identity)
	}
	return trust.WriteFile(resetFile(dataDir), nil)
}

// resetAdmin gives the first user the role of admin in all tenants, and new credentials, if that was asked for. Those before are void.
func (i *Identity) resetAdmin(ctx context.Context, in *store.Store, managerURL string) error {
	switch _, err := os.Stat(resetFile(i.dir)); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("reset the administrator: %w", err)
	}
	issue, err := in.Trust.ResetAdmin(ctx, trust.Account{Name: admin, Bindings: []trust.Binding{{Tenant: trust.AllTenants, Role: trust.Admin}}})
	if err != nil {
		return err
	}
	entry := trust.AuditEntry{
		Time: time.Now(), Identity: i.self.String(), Procedure: "weir-manager admin-reset", Subject: "user/" + admin, Result: "ok", Manager: i.self.Name,
	}
	if err := in.Audit.Append(ctx, []trust.AuditEntry{entry}); err != nil {
		return err
	}
	if err := i.writeAdminFile(issue, managerURL); err != nil {
		return err
	}
	return os.Remove(resetFile(i.dir)) // last: what failed before is done again
}
