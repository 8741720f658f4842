package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// Node holds the flags by which a mux or host presents itself to the manager.
type Node struct {
	Name    string
	Manager string // URLs, separated by commas

	TokenFile string
	CAHash    string
	DataDir   string
}

// Flags adds the flags; usage says what the name is for, and dataDir where the certificate is unless a flag
// says otherwise.
func (n *Node) Flags(flags *pflag.FlagSet, usage, dataDir string) {
	flags.StringVar(&n.Name, "name", ShortHostname(), usage+"; else the machine's, without its domain")
	flags.StringVar(&n.Manager, "manager", rpc.ManagerURL(),
		"URL of the manager, several separated by commas [$"+rpc.ManagerVariable+"]")
	flags.Lookup("manager").DefValue = rpc.DefaultManager
	flags.StringVar(&n.TokenFile, "token-file", "", "file with the token to join the cluster with, at the first start")
	flags.StringVar(&n.CAHash, "ca-hash", "", "hash of the cluster's CA, as weir token create prints it, at the first start")
	flags.StringVar(&n.DataDir, "data-dir", dataDir, "directory of this node's certificate")
}

// Check says what is wrong with the name, and what to do.
func (n *Node) Check() error {
	if !model.ValidName(n.Name) {
		return fmt.Errorf("read --name: must be a DNS label (lower-case letters, digits and -), is %q", n.Name)
	}
	return nil
}

// Connect makes a client of the manager that proves to be this node. At the first start it joins the
// cluster, and tries until a manager answers. close ends the client, and the renewal of the certificate.
func (n *Node) Connect(ctx context.Context, kind trust.Kind, log *slog.Logger) (client *rpc.Client, closed func(), err error) {
	m := &rpc.Membership{
		Managers: n.Manager, Kind: kind, Name: n.Name, DataDir: n.DataDir, TokenFile: n.TokenFile, CAHash: n.CAHash, Log: log,
	}
	if err := m.Obtain(ctx); err != nil {
		return nil, nil, err
	}
	if client, err = m.Client(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.Keep(ctx, client) //nolint:errcheck // it returns nil, when ctx ends
	}()
	return client, func() {
		cancel()
		<-ended
		client.Close()
	}, nil
}

// ShortHostname is the kernel's name of this machine without its domain, or empty.
func ShortHostname() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	name, _, _ = strings.Cut(strings.ToLower(name), ".")
	return name
}
