package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

// A member that was away for more entries than are kept in memory is sent the file of another one, and has all.
func TestAMemberThatIsFarBehindIsSentTheFile(t *testing.T) {
	var configs []Config
	var members []*Client
	var closes []func()
	var promotions errgroup.Group
	for i := range 3 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{
			Name: fmt.Sprintf("m%d", i+1), DataDir: t.TempDir(), PeerListen: listener.Addr().String(),
			Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		}
		listener.Close()
		if i > 0 {
			cfg.Join = func(ctx context.Context, peerURL string) ([]Member, error) {
				return addMember(ctx, members[0], cfg.Name, peerURL, &promotions)
			}
		}
		member, closeIt := openMember(t, cfg)
		configs, members, closes = append(configs, cfg), append(members, member), append(closes, closeIt)
	}
	if err := promotions.Wait(); err != nil {
		t.Fatal(err)
	}
	closes[2]()
	before := filesSent(t)
	var writes errgroup.Group
	writes.SetLimit(32)
	for i := range catchUpEntries + 200 {
		writes.Go(func() error {
			_, err := members[0].Put(t.Context(), fmt.Sprintf("/key/%04d", i), "value")
			return err
		})
	}
	if err := writes.Wait(); err != nil {
		t.Fatal(err)
	}
	back, _ := openMember(t, configs[2])
	for _, i := range []int{0, catchUpEntries, catchUpEntries + 199} {
		if r, err := back.Get(t.Context(), fmt.Sprintf("/key/%04d", i)); err != nil || r.Count != 1 {
			t.Errorf("the member that is back has %d values of key %d: %v", r.Count, i, err)
		}
	}
	if sent := filesSent(t); sent != before+1 {
		t.Errorf("%v files were sent, want 1: raft's log is longer in memory than %d entries", sent-before, catchUpEntries)
	}
}

// openMember opens a member until the test ends, or it is closed.
func openMember(t *testing.T, cfg Config) (c *Client, closeIt func()) {
	t.Helper()
	c, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	closeIt = sync.OnceFunc(func() { c.Close() })
	t.Cleanup(closeIt)
	return c, closeIt
}

// addMember has the cluster of a member take in another one, and give it a vote once it has caught up.
func addMember(ctx context.Context, of *Client, name, peerURL string, promotions *errgroup.Group) (all []Member, err error) {
	var r *clientv3.MemberAddResponse
	if err := retry(func() (err error) { r, err = of.MemberAddAsLearner(ctx, []string{peerURL}); return err }); err != nil {
		return nil, err
	}
	for _, m := range r.Members {
		if m.ID == r.Member.ID {
			m.Name = name
		}
		all = append(all, Member{Name: m.Name, PeerURL: m.PeerURLs[0]})
	}
	promotions.Go(func() error {
		return retry(func() error { _, err := of.MemberPromote(ctx, r.Member.ID); return err })
	})
	return all, nil
}

// retry calls what etcd refuses while members are new.
func retry(call func() error) (err error) {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = call(); err == nil {
			return nil
		}
	}
	return err
}

// filesSent counts the files that the members of this process sent to others.
func filesSent(t *testing.T) (sent float64) {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "etcd_network_snapshot_send_success" {
			for _, m := range family.GetMetric() {
				sent += m.GetCounter().GetValue()
			}
		}
	}
	return sent
}
