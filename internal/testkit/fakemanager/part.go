package fakemanager

import (
	"context"
	"slices"
	"sync"
)

// Part is what the manager says to nodes of one kind, and what they ask.
type Part[Update, Request any] struct {
	updates chan Update

	mu    sync.Mutex
	epoch uint64    // that messages are stamped with; 0: none is
	first *Update   // that a stream begins with; nil: with none
	asked []Request // by all streams so far
}

// Set has new streams begin with the update, of the epoch.
func (p *Part[Update, Request]) Set(epoch uint64, u Update) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.epoch, p.first = epoch, &u
}

// Publish sends the update to the stream that is open, as soon as one is, and has later ones begin with it.
func (p *Part[Update, Request]) Publish(u Update) {
	p.mu.Lock()
	p.first = &u
	p.mu.Unlock()
	p.updates <- u
}

// Streams are the requests of all streams so far.
func (p *Part[Update, Request]) Streams() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

// tell sends to a stream until ctx ends.
func (p *Part[Update, Request]) tell(ctx context.Context, r Request, send func(Update, uint64) error) error {
	p.mu.Lock()
	p.asked = append(p.asked, r)
	first, epoch := p.first, p.epoch
	p.mu.Unlock()
	if first != nil {
		if err := send(*first, epoch); err != nil {
			return err
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case u := <-p.updates:
			if err := send(u, epoch); err != nil {
				return err
			}
		}
	}
}
