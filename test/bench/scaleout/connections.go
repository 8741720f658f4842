package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlb/weir/internal/lab/mptcp"
)

const (
	asks    = 2 * time.Second  // between requests of a connection
	joining = 30 * time.Second // for its second subflow
	settled = 10 * time.Second // for a segment of each subflow, at the end
)

// open has the client open connections of Multipath TCP, each by two paths.
func (w *world) open(ctx context.Context) (g *mptcp.Group, before mptcp.View, err error) {
	path, err := mptcp.AddPath(w.lab, client, 2)
	if err != nil {
		return nil, nil, err
	}
	if err := errors.Join(mptcp.Prepare(w.lab), path.Join()); err != nil {
		return nil, nil, err
	}
	if g, err = mptcp.Open(ctx, w.lab, w.how.connections, asks, []string{client}, openVIP); err != nil {
		return nil, nil, err
	}
	joined, err := g.WaitJoined(ctx, joining, w.how.connections, nil, path.IPv4)
	if err == nil && joined < w.how.connections {
		err = fmt.Errorf("%d of %d connections have a second subflow", joined, w.how.connections)
	}
	if err == nil {
		before, err = g.View()
	}
	if err != nil {
		return nil, nil, errors.Join(err, g.Close())
	}
	return g, before, nil
}

// notice adds what connections lost.
func (r *report) notice(ctx context.Context, g *mptcp.Group, before mptcp.View) error {
	loss, err := g.WaitLost(ctx, settled, before)
	r.Broken, r.Subflows = loss.Connections, loss.Subflows
	fmt.Printf("of %d connections %d broke, and %d subflows were lost %v\n", g.Len(), r.Broken, r.Subflows, loss.Why)
	return err
}
