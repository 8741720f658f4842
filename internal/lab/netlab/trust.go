package netlab

import (
	"fmt"
	"path/filepath"
	"strings"
)

// DataDir is where a manager, mux or host keeps its certificate, and a manager its store.
func (l *cluster) DataDir(node string) string { return filepath.Join(l.dir, node) }

// AdminFile is the configuration of the cluster's first user, which the founding manager writes.
func (l *cluster) AdminFile() string {
	return filepath.Join(l.DataDir(l.Of(Manager)[0].Name), "admin.yaml")
}

// CAFile is the cluster's CA, as PEM.
func (l *cluster) CAFile() string {
	return filepath.Join(l.DataDir(l.Of(Manager)[0].Name), "tls", "ca.pem")
}

// roles are what tokens are made for, as weir token create calls them.
var roles = map[Kind]string{Manager: "manager", Mux: "mux", Host: "agent", ClientHost: "agent", Switch: "switch"}

// token returns the flags by which a node of the kind joins. The token is made once: it is good for all nodes of
// the kind, while the lab stands.
func (l *cluster) token(kind Kind) ([]string, error) {
	return l.makeToken(kind, "", "--ttl", "720h", "--uses", fmt.Sprint(len(l.Of(kind))+l.others(kind)))
}

// others are how many nodes of another kind join by the same role.
func (l *cluster) others(kind Kind) int {
	switch kind {
	case Host:
		return len(l.Of(ClientHost))
	case ClientHost:
		return len(l.Of(Host))
	}
	return 0
}

// Token returns the flags by which a node joins that did so before and has lost its certificate.
func (l *cluster) Token(node string) ([]string, error) {
	n, err := l.Node(node)
	if err != nil {
		return nil, err
	}
	return l.makeToken(n.Kind, node, "--name", node)
}

// makeToken asks the managers for a token, unless it was made before.
func (l *cluster) makeToken(kind Kind, name string, options ...string) ([]string, error) {
	role := roles[kind]
	if role == "" {
		return nil, fmt.Errorf("make a token: a %s does not join", kind)
	}
	l.joining.Lock()
	defer l.joining.Unlock()
	if l.tokens[role] != nil && name == "" {
		return l.tokens[role], nil
	}
	file := filepath.Join(l.dir, role+name+".token")
	out, err := l.Weir(append([]string{"token", "create", "--role", role, "--write", file}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("make a token: %w: %s", err, out)
	}
	_, rest, _ := strings.Cut(out, "ca-hash")
	flags := []string{"--token-file", file, "--ca-hash", strings.Fields(rest + " missing")[0]}
	if name == "" {
		l.tokens[role] = flags
	}
	return flags, nil
}
