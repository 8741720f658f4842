package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/trust"
)

// security is how this manager proves itself, and knows others.
type security struct {
	insecure  bool
	dir       string
	identity  trust.Identity
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

// newSecurity obtains this manager's certificate: that of the data directory, or one for the join token,
// or one of a CA that it makes, if it founds the cluster. The embedded etcd may use its files from then on.
func newSecurity(ctx context.Context, cfg Config, listen net.Addr) (*security, error) {
	s := &security{insecure: cfg.Insecure, dir: cfg.DataDir, identity: trust.Identity{Kind: trust.Manager, Name: cfg.Name}}
	if s.insecure {
		return s, nil
	}
	s.names, s.addresses = ownNames(cfg, listen)
	if text, err := os.ReadFile(foundingFile(s.dir)); err == nil {
		s.lone = foundsNone(s.dir)
		if s.founding, err = trust.ParseAuthority(text); err != nil {
			return nil, fmt.Errorf("read %s: %w", foundingFile(s.dir), err)
		}
		return s, s.sign(s.founding)
	}
	credential, err := trust.LoadCredential(s.dir)
	switch {
	case err == nil && time.Now().Before(credential.Certificate.NotAfter):
		s.take(credential)
		return s, nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, err
	case err == nil && (cfg.Join == "" || cfg.TokenFile == ""):
		// The store has the CA, which signs a new one; but members of the embedded etcd ask for one first.
		s.lone = fmt.Errorf("the certificate in %s ended at %s: join again with --join, --token-file and --ca-hash, or, if no manager has one in force, "+
			"restore a backup with weir restore", trust.NodeFile(s.dir), credential.Certificate.NotAfter.UTC().Format(time.DateTime))
		s.take(credential)
		return s, nil
	case cfg.Join != "":
		if err := joinable(cfg); err != nil {
			return nil, err
		}
		membership := &rpc.Membership{
			Managers: cfg.Join, Kind: trust.Manager, Name: cfg.Name, DataDir: s.dir, TokenFile: cfg.TokenFile, CAHash: cfg.CAHash,
			Names: s.names, Addresses: s.addresses, Log: cfg.Log,
		}
		if err := membership.Obtain(ctx); err != nil {
			return nil, err
		}
		s.take(membership.Credential())
		return s, nil
	}
	return s, s.found()
}

// take has this manager use a credential that it was given, and sign its next ones as of the same issue.
func (s *security) take(c *trust.Credential) {
	s.identity.Issue = c.Identity.Issue
	s.current.Store(c)
}

// joinable holds what a join needs, before it uses the token up.
func joinable(cfg Config) error {
	switch {
	case strings.Contains(cfg.Join, "http://"):
		return fmt.Errorf("join a cluster at %s: http:// is for managers that run with --insecure, write https:// or host:port", cfg.Join)
	case cfg.PeerListen == "" && len(cfg.EtcdEndpoints) == 0:
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
func (s *security) found() (err error) {
	s.lone = foundsNone(s.dir)
	if s.founding, err = trust.NewAuthority(time.Now()); err != nil {
		return err
	}
	text, err := s.founding.PEM()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(foundingFile(s.dir)), 0o700); err != nil {
		return fmt.Errorf("make the folder of the CA: %w: name a data directory that may be written, with --data-dir", err)
	}
	if err := trust.WriteFile(foundingFile(s.dir), text); err != nil {
		return err
	}
	return s.sign(s.founding)
}

// forget removes what found has made, if the store was not opened because of it.
func (s *security) forget(err error) error {
	if s.founding == nil || s.lone == nil || !errors.Is(err, s.lone) {
		return err
	}
	return errors.Join(err, os.RemoveAll(filepath.Dir(foundingFile(s.dir))))
}

// sign gives this manager a certificate.
func (s *security) sign(by *trust.Authority) error {
	credential, err := issue(by, s.identity, s.names, s.addresses, trust.ManagerLife)
	if err != nil {
		return err
	}
	if err := credential.Save(s.dir); err != nil {
		return err
	}
	s.current.Store(credential)
	return nil
}

// issue makes a key and a certificate.
func issue(by *trust.Authority, i trust.Identity, names []string, addresses []netip.Addr, life time.Duration) (*trust.Credential, error) {
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

// settle agrees with the store on the cluster's CA. If this manager founded the cluster, it writes the
// first user's configuration.
func (s *security) settle(ctx context.Context, from *store.Store, managerURL string) error {
	if s.insecure {
		return nil
	}
	trusted, _ := from.Trust()
	s.authority = trusted.Authority
	if s.authority == nil {
		made := s.founding
		if made == nil {
			return fmt.Errorf("%s holds a certificate, but the store has no CA: restore the store from a backup, or start with an empty --data-dir", s.dir)
		}
		authority, err := from.FoundTrust(ctx, made)
		if err != nil {
			return err
		}
		s.authority = authority
	}
	if _, err := inForce(s.identity, trusted); err != nil {
		return fmt.Errorf("%w: move %s away, and join again with --join, --token-file and --ca-hash", err, s.dir)
	}
	// Another manager of an external etcd may have been the first.
	if err := s.sign(s.authority); err != nil {
		return err
	}
	if s.founding == nil {
		return nil
	}
	if s.founding.Certificate.Equal(s.authority.Certificate) {
		if err := s.writeAdmin(ctx, from, managerURL); err != nil {
			return err
		}
	}
	s.founding = nil
	if err := os.Remove(foundingFile(s.dir)); err != nil {
		return fmt.Errorf("remove the CA's key, which the store has now: %w", err)
	}
	return nil
}

const (
	// renewOwn is how often a manager that runs signs its own certificate anew. It also does when it starts.
	renewOwn = trust.NodeLife * 2 / 3
	// lookAtAdmin is how often a manager looks whether the first user's certificate is to be renewed.
	lookAtAdmin = 24 * time.Hour
)

// keep renews this manager's certificate, and the first user's beside it, until ctx ends.
func (s *security) keep(ctx context.Context, m *Manager) error {
	if s.insecure {
		return nil
	}
	signed := time.Now()
	for {
		wait := time.Until(signed.Add(renewOwn))
		if wait <= 0 {
			if err := s.sign(s.authority); err != nil {
				m.log.Warn("can't renew the certificate, trying on", "err", err)
				wait = time.Minute
			} else {
				signed = time.Now()
			}
		}
		trusted, _ := m.store.Trust()
		if err := s.renewAdmin(trusted, time.Now()); err != nil {
			m.log.Warn("can't renew the certificate of the first user, trying on", "err", err)
		}
		select {
		case <-time.After(min(max(wait, time.Second), lookAtAdmin)):
		case <-ctx.Done():
			return nil
		}
	}
}

// tls is how this manager serves; nil without TLS.
func (s *security) tls() *tls.Config {
	if s.insecure {
		return nil
	}
	return trust.ServerTLS(s.current.Load)
}

// access is how this manager calls another.
func (s *security) access(address string) rpc.Access {
	if s.insecure {
		return rpc.Access{Managers: "http://" + address}
	}
	return rpc.Access{Managers: "https://" + address, CA: s.authority.Certificate, Current: s.current.Load}
}

// anyManager is the name that all managers' certificates have, and no others: the members of the embedded
// etcd ask it of each other.
const anyManager = "manager.weir.internal"

// toJoin is how the managers of the cluster are called before the store is open.
func (s *security) toJoin(managers string) rpc.Access {
	if s.insecure {
		if !strings.Contains(managers, "://") {
			managers = "http://" + strings.ReplaceAll(managers, ",", ",http://")
		}
		return rpc.Access{Managers: managers}
	}
	return rpc.Access{Managers: managers, CA: s.current.Load().CA, Current: s.current.Load}
}

// ownNames are what this manager may be reached by, for programs that look at the names in a certificate.
func ownNames(cfg Config, listen net.Addr) (names []string, addresses []netip.Addr) {
	names = []string{"localhost", cfg.Name, anyManager}
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

// reachable is the address to write into a configuration for one that is advertised.
func reachable(advertised string) string {
	host, port, err := net.SplitHostPort(advertised)
	if err != nil {
		return advertised
	}
	if a, err := netip.ParseAddr(host); err == nil && a.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// peerTLS is how the members of the embedded etcd talk to each other; nil without TLS.
func (s *security) peerTLS() *store.PeerTLS {
	if s.insecure {
		return nil
	}
	return &store.PeerTLS{Certificate: trust.NodeFile(s.dir), Key: trust.NodeFile(s.dir), CA: trust.CAFile(s.dir), Name: anyManager}
}
