package pki

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/trust"
)

// Config is what an identity is made of; what it does not tell is as in the configuration of a manager.
type Config struct {
	Insecure     bool // no TLS: everybody is believed
	Name         string
	DataDir      string // keeps the certificate, and the CA until the store has it
	Advertise    string // host:port of the API, of which the certificate tells the host; may be empty
	PeerListen   string // host:port for the other members of an embedded etcd; empty: there are none
	ExternalEtcd bool
	Join         string // managers of the cluster to join; empty: this one founds one, unless it has a certificate
	TokenFile    string // with Join
	CAHash       string // with Join
	Log          *slog.Logger
}

// Identity is how this manager proves itself, and knows others.
type Identity struct {
	insecure  bool
	log       *slog.Logger
	dir       string
	self      trust.Identity
	names     []string
	addresses []netip.Addr
	founding  *trust.Authority // made at the first start, until the store has it
	authority *trust.Authority // of the cluster, once the store was read
	lone      error            // why this manager can't talk to others before it has settled; nil: it can
	current   atomic.Pointer[trust.Credential]
	known     knownCertificates
}

// foundingFile holds the CA's key from the first start until the store has it.
func foundingFile(dir string) string {
	return filepath.Join(filepath.Dir(trust.NodeFile(dir)), "founding.pem")
}

// New obtains this manager's certificate: that of the data directory, or one for the join token,
// or one of a CA that it makes, if it founds the cluster. The embedded etcd may use its files from then on.
func New(ctx context.Context, cfg Config, listen net.Addr) (*Identity, error) {
	i := &Identity{insecure: cfg.Insecure, log: cfg.Log, dir: cfg.DataDir, self: trust.Identity{Kind: trust.Manager, Name: cfg.Name}}
	if i.insecure {
		return i, nil
	}
	i.names, i.addresses = ownNames(cfg, listen)
	if text, err := os.ReadFile(foundingFile(i.dir)); err == nil {
		i.lone = foundsNone(i.dir)
		if i.founding, err = trust.ParseAuthority(text); err != nil {
			return nil, fmt.Errorf("read %s: %w", foundingFile(i.dir), err)
		}
		return i, i.sign(i.founding)
	}
	credential, err := trust.LoadCredential(i.dir)
	switch {
	case err == nil && time.Now().Before(credential.Certificate.NotAfter):
		i.take(credential)
		return i, nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, err
	case err == nil && (cfg.Join == "" || cfg.TokenFile == ""):
		// The store has the CA, which signs a new one; but members of the embedded etcd ask for one first.
		i.lone = fmt.Errorf("the certificate in %s ended at %s: join again with --join, --token-file and --ca-hash, or, if no manager has one in force, "+
			"restore a backup with weir restore", trust.NodeFile(i.dir), credential.Certificate.NotAfter.UTC().Format(time.DateTime))
		i.take(credential)
		return i, nil
	case cfg.Join != "":
		if err := joinable(cfg); err != nil {
			return nil, err
		}
		membership := &rpc.Membership{
			Managers: cfg.Join, Kind: trust.Manager, Name: cfg.Name, DataDir: i.dir, TokenFile: cfg.TokenFile, CAHash: cfg.CAHash,
			Names: i.names, Addresses: i.addresses, Log: cfg.Log,
		}
		if err := membership.Obtain(ctx); err != nil {
			return nil, err
		}
		i.take(membership.Credential())
		return i, nil
	}
	return i, i.found()
}

// take has this manager use a credential that it was given, and sign its next ones as of the same issue.
func (i *Identity) take(c *trust.Credential) {
	i.self.Issue = c.Identity.Issue
	i.current.Store(c)
}

// joinable holds what a join needs, before it uses the token up.
func joinable(cfg Config) error {
	switch {
	case strings.Contains(cfg.Join, "http://"):
		return fmt.Errorf("join a cluster at %s: http:// is for managers that run with --insecure, write https:// or host:port", cfg.Join)
	case cfg.PeerListen == "" && !cfg.ExternalEtcd:
		return errNoPeerListen
	}
	return nil
}

var errNoPeerListen = errors.New("join a cluster: --peer-listen is needed, at which the other managers reach this one")

// foundsNone is why a manager without a certificate does not make a CA: those that it shares a store with would
// not know it.
func foundsNone(dir string) error {
	return fmt.Errorf("there is no certificate in %s, and its store has other managers: if all of them run with --insecure, take the others out first "+
		"with weir delete manager; else move %[1]s away, and join again with --join, --token-file and --ca-hash", dir)
}

// found makes a CA, and keeps it on disk until the store has it.
func (i *Identity) found() (err error) {
	i.lone = foundsNone(i.dir)
	if i.founding, err = trust.NewAuthority(time.Now()); err != nil {
		return err
	}
	text, err := i.founding.PEM()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(foundingFile(i.dir)), 0o700); err != nil {
		return fmt.Errorf("make the folder of the CA: %w: name a data directory that may be written, with --data-dir", err)
	}
	if err := trust.WriteFile(foundingFile(i.dir), text); err != nil {
		return err
	}
	return i.sign(i.founding)
}

// Forget removes what found has made, if the store was not opened because of it.
func (i *Identity) Forget(err error) error {
	if i.founding == nil || i.lone == nil || !errors.Is(err, i.lone) {
		return err
	}
	return errors.Join(err, os.RemoveAll(filepath.Dir(foundingFile(i.dir))))
}

// sign gives this manager a certificate.
func (i *Identity) sign(by *trust.Authority) error {
	credential, err := Issue(by, i.self, i.names, i.addresses, trust.ManagerLife)
	if err != nil {
		return err
	}
	if err := credential.Save(i.dir); err != nil {
		return err
	}
	i.current.Store(credential)
	return nil
}

// Issue makes a key and a certificate.
func Issue(by *trust.Authority, i trust.Identity, names []string, addresses []netip.Addr, life time.Duration) (*trust.Credential, error) {
	key, err := trust.NewKey()
	if err != nil {
		return nil, err
	}
	request, err := key.Request(names, addresses)
	if err != nil {
		return nil, err
	}
	certificate, err := by.Sign(i, request, time.Now(), life)
	if err != nil {
		return nil, err
	}
	return key.Credential(certificate, by.Certificate)
}

// Settle agrees with the store on the cluster's CA, and says whether that is another one than the one that this manager began with.
// If this manager founded the cluster, it writes the first user's configuration.
func (i *Identity) Settle(ctx context.Context, from *store.Store, managerURL string) (changed bool, err error) {
	if i.insecure {
		return false, nil
	}
	trusted, _ := from.Trust.Watch()
	i.authority = trusted.Authority
	if i.authority == nil {
		made := i.founding
		if made == nil {
			return false, fmt.Errorf("%s holds a certificate, but the store has no CA: restore the store from a backup, or start with an empty --data-dir", i.dir)
		}
		authority, err := from.Trust.FoundCA(ctx, made)
		if err != nil {
			return false, err
		}
		i.authority = authority
	}
	// A store that was restored may know a manager of this name that has joined again.
	if before := trusted.Principals.At(i.self.String()); i.founding != nil && !before.Revoked {
		i.self.Issue = max(i.self.Issue, before.Issue)
	}
	if _, err := InForce(i.self, trusted); err != nil {
		return false, fmt.Errorf("%w: move %s away, and join again with --join, --token-file and --ca-hash", err, i.dir)
	}
	// Another manager of an external etcd may have been the first.
	if err := i.sign(i.authority); err != nil {
		return false, err
	}
	i.lone = nil
	if i.founding == nil {
		return false, i.resetAdmin(ctx, from, managerURL)
	}
	if changed = !i.founding.Certificate.Equal(i.authority.Certificate); !changed {
		if err := i.writeAdmin(ctx, from, managerURL); err != nil {
			return false, err
		}
	}
	i.founding = nil
	if err := os.Remove(foundingFile(i.dir)); err != nil {
		return false, fmt.Errorf("remove the CA's key, which the store has now: %w", err)
	}
	return changed, nil
}

const (
	// renewOwn is how often a manager that runs signs its own certificate anew. It also does when it starts.
	renewOwn = trust.NodeLife * 2 / 3
	// lookAtAdmin is how often a manager looks whether the first user's configuration is still good.
	lookAtAdmin = time.Minute
)

// Keep renews this manager's certificate, and the first user's beside it, until ctx ends.
func (i *Identity) Keep(ctx context.Context, from *store.Store, log *slog.Logger) error {
	if i.insecure {
		return nil
	}
	signed, told := time.Now(), ""
	for {
		wait := time.Until(signed.Add(renewOwn))
		if wait <= 0 {
			if err := i.sign(i.authority); err != nil {
				log.Warn("can't renew the certificate, trying on", "err", err)
				wait = time.Minute
			} else {
				signed = time.Now()
			}
		}
		trusted, _ := from.Trust.Watch()
		if err := i.KeepAdmin(trusted, from.State().ListManagers(), time.Now()); err == nil {
			told = ""
		} else if err.Error() != told {
			told = err.Error()
			log.Warn("can't keep the first user's configuration, trying on", "err", err)
		}
		select {
		case <-time.After(min(max(wait, time.Second), lookAtAdmin)):
		case <-ctx.Done():
			return nil
		}
	}
}

// Insecure says whether this manager works without TLS, and believes everybody.
func (i *Identity) Insecure() bool { return i.insecure }

// Lone is why this manager can't talk to others before it has settled; nil: it can.
func (i *Identity) Lone() error { return i.lone }

// Authority is the cluster's CA, once it has settled.
func (i *Identity) Authority() *trust.Authority { return i.authority }

// Current is its newest certificate.
func (i *Identity) Current() *trust.Credential { return i.current.Load() }

// TLS is how this manager serves; nil without TLS.
func (i *Identity) TLS() *tls.Config {
	if i.insecure {
		return nil
	}
	return trust.ServerTLS(i.current.Load)
}

// Access is how this manager calls another.
func (i *Identity) Access(address string) rpc.Access {
	if i.insecure {
		return rpc.Access{Managers: "http://" + address}
	}
	return rpc.Access{Managers: "https://" + address, CA: i.authority.Certificate, Current: i.current.Load}
}

// AnyManager is the name that all managers' certificates have, and no others: the members of the embedded
// etcd ask it of each other.
const AnyManager = "manager.weir.internal"

// ToJoin is how the managers of the cluster are called before the store is open.
func (i *Identity) ToJoin(managers string) rpc.Access {
	if i.insecure {
		if !strings.Contains(managers, "://") {
			managers = "http://" + strings.ReplaceAll(managers, ",", ",http://")
		}
		return rpc.Access{Managers: managers}
	}
	return rpc.Access{Managers: managers, CA: i.current.Load().CA, Current: i.current.Load}
}

// ownNames are what this manager may be reached by, for programs that look at the names in a certificate.
func ownNames(cfg Config, listen net.Addr) (names []string, addresses []netip.Addr) {
	names = []string{"localhost", cfg.Name, AnyManager}
	if host, err := os.Hostname(); err == nil && host != "" {
		names = append(names, strings.ToLower(host))
	}
	addresses = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	add := func(host string) {
		if a, err := netip.ParseAddr(host); err != nil {
			if host != "" {
				names = append(names, host)
			}
		} else if !a.IsUnspecified() {
			addresses = append(addresses, a.Unmap().WithZone(""))
		}
	}
	for _, hostPort := range []string{cfg.Advertise, cfg.PeerListen, listen.String()} {
		if host, _, err := net.SplitHostPort(hostPort); err == nil {
			add(host)
		}
	}
	if all, err := net.InterfaceAddrs(); err == nil {
		for _, a := range all {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
				addresses = append(addresses, p.Addr())
			}
		}
	}
	slices.Sort(names)
	slices.SortFunc(addresses, netip.Addr.Compare)
	return slices.Compact(names), slices.Compact(addresses)
}

// PeerTLS is how the members of the embedded etcd talk to each other; nil without TLS.
func (i *Identity) PeerTLS() *etcd.PeerTLS {
	if i.insecure {
		return nil
	}
	return &etcd.PeerTLS{Certificate: trust.NodeFile(i.dir), Key: trust.NodeFile(i.dir), CA: trust.CAFile(i.dir), Name: AnyManager}
}
