package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/keyspace"
)

// enroll has the store know this replica.
func (c *Cluster) enroll(ctx context.Context, address string) error {
	self := store.Manager{Name: c.Store.Name(), Address: address, Schema: codec.NewestSchema}
	if server := c.etcd.Server(); server != nil {
		self.Member, self.PeerURL = server.ID(), server.PeerURL()
	}
	if c.Store.State().Managers[self.Name] == self {
		return nil
	}
	value, err := codec.Encode(self)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
	defer cancel()
	_, err = c.etcd.Put(ctx, keyspace.Managers+self.Name, value)
	return etcd.Explain("note the manager "+self.Name, err)
}

// Managers are the replicas, by name.
func (c *Cluster) Managers() []store.Manager {
	all := c.Store.State().ListManagers()
	if server := c.etcd.Server(); server != nil {
		learners := server.Learners()
		for i := range all {
			_, all[i].Learner = learners[all[i].Member]
		}
	}
	return all
}

// AddManager takes a member of the embedded etcd into the cluster, as a learner, and returns all members.
// One of the same name that has no vote yet is replaced: its start was cut off.
func (c *Cluster) AddManager(ctx context.Context, m store.Manager) ([]etcd.Member, error) {
	if c.etcd.Server() == nil {
		return nil, errors.New("the managers share an external etcd: start this one with --etcd-endpoints instead of --join")
	}
	if !model.ValidName(m.Name) {
		return nil, &model.FieldError{Field: "name", Reason: "must be a DNS label (lower-case letters, digits and -)"}
	}
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
	defer cancel()
	if err := c.Store.Election.Commit(ctx, nil); err != nil { // it leads, by etcd: members are no part of a transaction
		return nil, etcd.Explain("add the manager "+m.Name, err)
	}
	list, err := c.etcd.MemberList(ctx)
	if err != nil {
		return nil, etcd.Explain("list the managers", err)
	}
	if err := c.makeWay(ctx, m, list.Members); err != nil {
		return nil, err
	}
	added, err := c.etcd.MemberAddAsLearner(ctx, []string{m.PeerURL})
	switch {
	case errors.Is(err, rpctypes.ErrTooManyLearners):
		return nil, fmt.Errorf("manager %[1]s joins just now, and has no vote yet: if it does not go on, take it out with weir delete manager %[1]s: %[2]w",
			c.joiner(list.Members), etcd.ErrRetry)
	case errors.Is(err, rpctypes.ErrUnhealthy):
		return nil, fmt.Errorf("a manager is not well: %w", etcd.ErrRetry)
	case err != nil:
		return nil, etcd.Explain("add the manager "+m.Name, err)
	}
	m.Member = added.Member.ID
	if err := c.noteMember(ctx, m); err != nil {
		return nil, err
	}
	c.log.Info("a manager joins", "manager", m.Name, "addresses", m.PeerURL)
	return c.named(added.Members, m), nil
}

// noteMember has the store know the manager of a member that was added. If another replica leads meanwhile, the member is taken out.
func (c *Cluster) noteMember(ctx context.Context, m store.Manager) error {
	value, err := codec.Encode(m)
	if err == nil {
		err = c.Store.Election.Commit(ctx, []clientv3.Op{clientv3.OpPut(keyspace.Managers+m.Name, value)})
	}
	if err == nil {
		return nil
	}
	if _, undone := c.etcd.MemberRemove(ctx, m.Member); undone != nil {
		c.log.Warn("a manager that can't join has a member", "manager", m.Name, "err", undone)
	}
	return etcd.Explain("note the manager "+m.Name, err)
}

// joiner is the name of the manager whose member has no vote yet.
func (c *Cluster) joiner(members []*etcdserverpb.Member) string {
	for _, member := range members {
		if !member.IsLearner {
			continue
		}
		for _, m := range c.Store.State().Managers {
			if m.Member == member.ID {
				return m.Name
			}
		}
		return cmp.Or(member.Name, fmt.Sprintf("%x", member.ID))
	}
	return "?"
}

// makeWay removes a learner of m's name or peer address, and refuses m if a member with a vote has either.
func (c *Cluster) makeWay(ctx context.Context, m store.Manager, members []*etcdserverpb.Member) error {
	for _, other := range members {
		known := c.Store.State().Managers[m.Name]
		if known.Member != other.ID && other.Name != m.Name && !slices.Contains(other.PeerURLs, m.PeerURL) {
			continue
		}
		if !other.IsLearner {
			return &model.FieldError{Field: "name", Reason: fmt.Sprintf(
				"manager %s at %v is a member already: if its data is lost, take it out with weir delete manager %s first",
				other.Name, other.PeerURLs, other.Name)}
		}
		if _, err := c.etcd.MemberRemove(ctx, other.ID); err != nil {
			return etcd.Explain("replace the manager "+m.Name, err)
		}
	}
	return nil
}

// named are etcd's members by the names of their managers, which etcd learns only when they start.
func (c *Cluster) named(members []*etcdserverpb.Member, joins store.Manager) []etcd.Member {
	names := map[uint64]string{joins.Member: joins.Name}
	for _, m := range c.Store.State().Managers {
		if names[m.Member] == "" {
			names[m.Member] = m.Name
		}
	}
	var all []etcd.Member
	for _, other := range members {
		name := names[other.ID]
		if name == "" {
			name = fmt.Sprintf("%x", other.ID)
		}
		for _, url := range other.PeerURLs {
			all = append(all, etcd.Member{Name: name, PeerURL: url})
		}
	}
	return all
}

// RemoveManager takes a manager out of the cluster, alive or dead. The one that leads hands its lead on first,
// and asks to try again.
func (c *Cluster) RemoveManager(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
	defer cancel()
	if err := c.Store.Election.Commit(ctx, nil); err != nil {
		return etcd.Explain("take manager "+name+" out", err)
	}
	m, there := c.Store.State().Managers[name]
	if !there {
		return &model.FieldError{Field: "name", Reason: fmt.Sprintf("there is no manager %q", name)}
	}
	if len(c.Store.State().Managers) == 1 {
		return &model.FieldError{Field: "name", Reason: fmt.Sprintf("manager %s is the last one", name)}
	}
	if c.etcd.Server() != nil {
		if name == c.Store.Name() {
			return c.etcd.Server().MoveLeader(ctx)
		}
		_, err := c.etcd.MemberRemove(ctx, m.Member)
		if errors.Is(err, rpctypes.ErrUnhealthy) {
			// etcd wants to have been connected to the others for some seconds.
			return fmt.Errorf("take manager %s out: the others would have no majority that is well: %w", name, etcd.ErrRetry)
		}
		if err != nil && !errors.Is(err, rpctypes.ErrMemberNotFound) {
			return etcd.Explain("take manager "+name+" out", err)
		}
	}
	if err := c.Store.Election.Commit(ctx, []clientv3.Op{clientv3.OpDelete(keyspace.Managers + name)}); err != nil {
		return etcd.Explain("forget manager "+name, err)
	}
	c.log.Info("a manager was taken out", "manager", name)
	// Who asks next sees it gone.
	return c.Store.Await(ctx, func(s *store.State) bool { _, there := s.Managers[name]; return !there })
}

// promoteEvery is how often a leader looks whether learners have caught up.
const promoteEvery = 500 * time.Millisecond

// Promote gives members that joined a vote, once they have caught up, until ctx ends.
func (c *Cluster) Promote(ctx context.Context) error {
	if c.etcd.Server() == nil {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(promoteEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for id, name := range c.etcd.Server().Learners() {
			if name == "" { // it has not started
				continue
			}
			_, err := c.etcd.MemberPromote(ctx, id)
			switch {
			case err == nil:
				c.log.Info("a manager has joined", "manager", name)
			case ctx.Err() == nil && !errors.Is(err, rpctypes.ErrMemberLearnerNotReady):
				c.log.Warn("can't give a manager its vote, trying again", "manager", name, "err", err)
			}
		}
	}
}
