package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// RetryWait is the pause before a broken watch is opened again.
const RetryWait = 200 * time.Millisecond

// UnreadableError is about a value in etcd, not about reaching it.
type UnreadableError struct{ error }

// Unwrap is what is wrong with the value.
func (e *UnreadableError) Unwrap() error { return e.error }

// Follower is told what changes below a prefix.
type Follower struct {
	Prefix string
	// Revision is the one that the follower has.
	Revision func() int64
	// Take takes over events: all of each of their revisions.
	Take func([]*mvccpb.Event) error
	// Load reads all below the prefix anew, as the events since Revision are compacted.
	Load func(context.Context) error
}

// Follow tells f what changes until ctx ends. It fails if there is a value that f can't read.
func (c *Client) Follow(ctx context.Context, f Follower) error {
	for {
		err := c.watch(ctx, f)
		if errors.Is(err, rpctypes.ErrCompacted) && ctx.Err() == nil {
			if err = f.Load(ctx); err == nil {
				continue
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, new(*UnreadableError)):
			return err
		}
		c.log.Warn("lost the watch of the store, opening it again", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(RetryWait):
		}
	}
}

// watch tells f what changes until the watch breaks.
func (c *Client) watch(ctx context.Context, f Follower) error {
	take := func(events []*mvccpb.Event) error {
		if err := f.Take(events); err != nil {
			return &UnreadableError{err}
		}
		return nil
	}
	from := f.Revision() + 1
	if c.server != nil {
		return c.server.eachChange(ctx, f.Prefix, from, take)
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for response := range c.Watch(ctx, f.Prefix, clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if err := response.Err(); err != nil {
			return err
		}
		if err := take(response.Events); err != nil {
			return err
		}
	}
	return errors.New("the watch ended")
}
