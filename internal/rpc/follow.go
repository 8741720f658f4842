package rpc

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"
)

// Waits between attempts to open a stream: half to all of a time that doubles. With dialTimeout the
// longest is less than what a manager allows a host to be silent for.
const (
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 2 * time.Second
)

// Follow keeps a stream open until ctx ends, then returns nil. It calls apply for every message, in
// order, from the goroutine that called it. When the stream breaks it opens another one after a wait
// that grows; an error of apply breaks the stream too, and the next one begins with a snapshot.
// Changes of state are logged, not each attempt. what names the stream in logs: "tables", "mux stream".
func Follow[T any](
	ctx context.Context,
	log *slog.Logger,
	what string,
	open func(context.Context) (*connect.ServerStreamForClient[T], error),
	apply func(*T) error,
) error {
	f := follower{log: log.With("stream", what)}
	for {
		err := follow(ctx, &f, open, apply)
		if ctx.Err() != nil {
			return nil
		}
		f.broke(err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(f.wait()):
		}
	}
}

// follow opens one stream and reads it to its end.
func follow[T any](
	ctx context.Context,
	f *follower,
	open func(context.Context) (*connect.ServerStreamForClient[T], error),
	apply func(*T) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := open(ctx)
	if err != nil {
		return translate(err)
	}
	defer stream.Close()
	for stream.Receive() {
		if err := apply(stream.Msg()); err != nil {
			return err
		}
		f.works()
	}
	if err := stream.Err(); err != nil && !errors.Is(err, io.EOF) {
		return translate(err)
	}
	return errors.New("the manager closed the stream")
}

// follower is what Follow remembers between streams.
type follower struct {
	log       *slog.Logger
	connected bool
	reason    string // of the last failure that was logged
	attempts  int    // since the stream last worked
}

func (f *follower) works() {
	if !f.connected {
		f.log.Info("connected to the manager")
	}
	f.connected, f.reason, f.attempts = true, "", 0
}

func (f *follower) broke(err error) {
	if f.connected || f.reason != err.Error() {
		f.log.Warn("no connection to the manager, retrying", "err", err)
	}
	f.connected, f.reason = false, err.Error()
	f.attempts++
}

func (f *follower) wait() time.Duration {
	most := backoffMost
	if doublings := f.attempts - 1; doublings < 6 {
		most = min(most, backoffFirst<<doublings)
	}
	return most/2 + rand.N(most/2)
}
