package etcd

import (
	"context"
	"fmt"
	"net/url"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// Member is one of the members of a cluster of etcd that has a program of its own.
type Member struct {
	Name, Dir    string
	Client, Peer string // URLs
	Cluster      string // "NAME=PEER,NAME=PEER": all members
}

// Arguments are what the program of a member is started with, for ParseMember.
func (m Member) Arguments() []string { return []string{m.Name, m.Dir, m.Client, m.Peer, m.Cluster} }

// ParseMember is the member that a program was started as.
func ParseMember(arguments []string) (Member, error) {
	if len(arguments) != 5 {
		return Member{}, fmt.Errorf("a member of etcd has 5 arguments, and not %q", arguments)
	}
	return Member{arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]}, nil
}

// Run runs the member until it fails or ctx ends.
func (m Member) Run(ctx context.Context) error {
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.InitialCluster = m.Name, m.Dir, m.Cluster
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	client, err := url.Parse(m.Client)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	peer, err := url.Parse(m.Peer)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	running, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	defer running.Close()
	select {
	case <-ctx.Done():
		return nil
	case err := <-running.Err():
		return fmt.Errorf("run etcd: %w", err)
	}
}
