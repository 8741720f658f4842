package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/model"
)

// Manager is a replica as the store knows it.
type Manager struct {
	Name    string `json:"name"`
	Address string `json:"address"`           // of its API
	PeerURL string `json:"peerURL,omitempty"` // of its member of the embedded etcd, if others reach it
	Member  uint64 `json:"member,omitempty"`  // that member's id
	Schema  int    `json:"schema,omitempty"`  // the newest of the store's documents that it knows; 0: the first
	Learner bool   `json:"-"`                 // it has no vote yet
}

// ErrRetry is returned by changes of the cluster that can't be made just now.
var ErrRetry = errors.New("try again")

func (s *State) putManager(name string, value []byte) error {
	m, err := decode[Manager](prefixManagers+name, value)
	s.Managers = maps.Clone(s.Managers)
	if s.Managers == nil {
		s.Managers = map[string]Manager{}
	}
	s.Managers[name] = m
	return err
}

// enroll has the store know this replica.
func (s *Store) enroll(ctx context.Context) error {
	self := Manager{Name: s.name, Address: s.address, Schema: newestSchema}
	if s.member != nil {
		id := s.member.etcd.Server.MemberID()
		self.Member = uint64(id)
		if m := s.member.etcd.Server.Cluster().Member(id); m != nil && len(m.PeerURLs) == 1 && m.PeerURLs[0] != lonely {
			self.PeerURL = m.PeerURLs[0]
		}
	}
	if s.State().Managers[s.name] == self {
		return nil
	}
	return s.putManager(ctx, self)
}

func (s *Store) putManager(ctx context.Context, m Manager) error {
	value, err := encode(m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = s.client.Put(ctx, prefixManagers+m.Name, value)
	return explain("note the manager "+m.Name, err)
}

// Managers are the replicas, by name.
func (s *Store) Managers() []Manager {
	known := s.State().Managers
	all := make([]Manager, 0, len(known))
	for _, name := range slices.Sorted(maps.Keys(known)) {
		m := known[name]
		if s.member != nil {
			for _, other := range s.member.etcd.Server.Cluster().Members() {
				m.Learner = m.Learner || uint64(other.ID) == m.Member && other.IsLearner
			}
		}
		all = append(all, m)
	}
	return all
}

// AddManager takes a member of the embedded etcd into the cluster, as a learner, and returns all members.
// One of the same name that has no vote yet is replaced: its start was cut off.
func (s *Store) AddManager(ctx context.Context, m Manager) ([]Member, error) {
	if s.member == nil {
		return nil, errors.New("the managers share an external etcd: start this one with --etcd-endpoints instead of --join")
	}
	if !model.ValidName(m.Name) {
		return nil, &model.FieldError{Field: "name", Reason: "must be a DNS label (lower-case letters, digits and -)"}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := s.txn(ctx, nil); err != nil { // it leads, by etcd: members are no part of a transaction
		return nil, explain("add the manager "+m.Name, err)
	}
	list, err := s.client.MemberList(ctx)
	if err != nil {
		return nil, explain("list the managers", err)
	}
	if err := s.makeWay(ctx, m, list.Members); err != nil {
		return nil, err
	}
	added, err := s.client.MemberAddAsLearner(ctx, []string{m.PeerURL})
	switch {
	case errors.Is(err, rpctypes.ErrTooManyLearners):
		return nil, fmt.Errorf("manager %[1]s joins just now, and has no vote yet: if it does not go on, take it out with weir delete manager %[1]s: %[2]w",
			s.joiner(list.Members), ErrRetry)
	case errors.Is(err, rpctypes.ErrUnhealthy):
		return nil, fmt.Errorf("a manager is not well: %w", ErrRetry)
	case err != nil:
		return nil, explain("add the manager "+m.Name, err)
	}
	m.Member = added.Member.ID
	if err := s.noteMember(ctx, m); err != nil {
		return nil, err
	}
	s.log.Info("a manager joins", "manager", m.Name, "addresses", m.PeerURL)
	return s.named(added.Members, m), nil
}

// noteMember has the store know the manager of a member that was added. If another replica leads meanwhile, the member is taken out.
func (s *Store) noteMember(ctx context.Context, m Manager) error {
	value, err := encode(m)
	if err == nil {
		err = s.txn(ctx, []clientv3.Op{clientv3.OpPut(prefixManagers+m.Name, value)})
	}
	if err == nil {
		return nil
	}
	if _, undone := s.client.MemberRemove(ctx, m.Member); undone != nil {
		s.log.Warn("a manager that can't join has a member", "manager", m.Name, "err", undone)
	}
	return explain("note the manager "+m.Name, err)
}

// joiner is the name of the manager whose member has no vote yet.
func (s *Store) joiner(members []*etcdserverpb.Member) string {
	for _, member := range members {
		if !member.IsLearner {
			continue
		}
		for _, m := range s.State().Managers {
			if m.Member == member.ID {
				return m.Name
			}
		}
		return cmp.Or(member.Name, fmt.Sprintf("%x", member.ID))
	}
	return "?"
}

// makeWay removes a learner of m's name or peer address, and refuses m if a member with a vote has either.
func (s *Store) makeWay(ctx context.Context, m Manager, members []*etcdserverpb.Member) error {
	for _, other := range members {
		known := s.State().Managers[m.Name]
		if known.Member != other.ID && other.Name != m.Name && !slices.Contains(other.PeerURLs, m.PeerURL) {
			continue
		}
		if !other.IsLearner {
			return &model.FieldError{Field: "name", Reason: fmt.Sprintf(
				"manager %s at %v is a member already: if its data is lost, take it out with weir delete manager %s first",
				other.Name, other.PeerURLs, other.Name)}
		}
		if _, err := s.client.MemberRemove(ctx, other.ID); err != nil {
			return explain("replace the manager "+m.Name, err)
		}
	}
	return nil
}

// named are etcd's members by the names of their managers, which etcd learns only when they start.
func (s *Store) named(members []*etcdserverpb.Member, joins Manager) []Member {
	names := map[uint64]string{joins.Member: joins.Name}
	for _, m := range s.State().Managers {
		if names[m.Member] == "" {
			names[m.Member] = m.Name
		}
	}
	var all []Member
	for _, other := range members {
		name := names[other.ID]
		if name == "" {
			name = fmt.Sprintf("%x", other.ID)
		}
		for _, url := range other.PeerURLs {
			all = append(all, Member{Name: name, PeerURL: url})
		}
	}
	return all
}

// RemoveManager takes a manager out of the cluster, alive or dead. The one that leads hands its lead on first,
// and asks to try again.
func (s *Store) RemoveManager(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := s.txn(ctx, nil); err != nil {
		return explain("take manager "+name+" out", err)
	}
	m, there := s.State().Managers[name]
	if !there {
		return &model.FieldError{Field: "name", Reason: fmt.Sprintf("there is no manager %q", name)}
	}
	if len(s.State().Managers) == 1 {
		return &model.FieldError{Field: "name", Reason: fmt.Sprintf("manager %s is the last one", name)}
	}
	if s.member != nil {
		if name == s.name {
			return s.member.handOver(ctx)
		}
		_, err := s.client.MemberRemove(ctx, m.Member)
		if errors.Is(err, rpctypes.ErrUnhealthy) {
			// etcd wants to have been connected to the others for some seconds.
			return fmt.Errorf("take manager %s out: the others would have no majority that is well: %w", name, ErrRetry)
		}
		if err != nil && !errors.Is(err, rpctypes.ErrMemberNotFound) {
			return explain("take manager "+name+" out", err)
		}
	}
	if err := s.txn(ctx, []clientv3.Op{clientv3.OpDelete(prefixManagers + name)}); err != nil {
		return explain("forget manager "+name, err)
	}
	s.log.Info("a manager was taken out", "manager", name)
	// Who asks next sees it gone.
	return s.await(ctx, func(s *State) bool { _, there := s.Managers[name]; return !there })
}

// handOver has another member lead etcd.
func (m *member) handOver(ctx context.Context) error {
	self := m.etcd.Server.MemberID()
	for _, other := range m.etcd.Server.Cluster().Members() {
		if other.ID == self || other.IsLearner {
			continue
		}
		if err := m.etcd.Server.MoveLeader(ctx, uint64(self), uint64(other.ID)); err == nil {
			return fmt.Errorf("another manager leads from now on: %w", ErrRetry)
		}
	}
	return errors.New("no other manager can lead: start them first")
}

// promoteEvery is how often a leader looks whether learners have caught up.
const promoteEvery = 500 * time.Millisecond

// Promote gives members that joined a vote, once they have caught up, until ctx ends.
func (s *Store) Promote(ctx context.Context) error {
	if s.member == nil {
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
		for _, other := range s.member.etcd.Server.Cluster().Members() {
			if !other.IsLearner || other.Name == "" { // it has not started
				continue
			}
			_, err := s.client.MemberPromote(ctx, uint64(other.ID))
			switch {
			case err == nil:
				s.log.Info("a manager has joined", "manager", other.Name)
			case ctx.Err() == nil && !errors.Is(err, rpctypes.ErrMemberLearnerNotReady):
				s.log.Warn("can't give a manager its vote, trying again", "manager", other.Name, "err", err)
			}
		}
	}
}

// Sync returns when the State holds all that was written before, by whatever replica.
func (s *Store) Sync(ctx context.Context) error {
	newest, err := s.client.Get(ctx, keyGeneration, clientv3.WithKeysOnly())
	if err != nil {
		return explain("read the store", err)
	}
	// The revision of the answer may be one that wrote nothing of ours.
	if len(newest.Kvs) != 1 {
		return nil
	}
	generation := model.Generation(newest.Kvs[0].ModRevision)
	return s.await(ctx, func(s *State) bool { return s.Generation >= generation })
}
