// Package trustservice serves TrustService: join tokens, principals, users, tenants and the audit log.
//
// Invariant: somebody is left who may change who may do what.
//
// Certificates are made by manager/pki; who may call what is package authz.
package trustservice

import (
	"log/slog"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

// Service serves TrustService.
type Service struct {
	Store           *store.Store
	Identity        *pki.Identity                                                          // of this manager, with the CA
	CertificateLife time.Duration                                                          // of nodes; 0: trust.NodeLife
	View            func() *store.State                                                    // as users are shown it
	Reported        func(*store.State, model.Node) (nodestatus.Status, *weirv1.NodeStatus) // the newest that a node reported
	Now             func() time.Time
	Log             *slog.Logger
}
