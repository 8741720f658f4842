package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"

	"github.com/weirlb/weir/internal/testkit/turns"
)

// versions of the processes of a round, two of each.
var versions = [...]string{"base", "base", "new", "new"}

// samples are nanoseconds a packet, by process and turn.
type samples [len(versions)][]float64

// round is what processes that were started together measured.
type round struct {
	names   []string
	samples map[string]*samples
}

// measure starts the processes and has them measure all wanted classes in turns.
func measure(ctx context.Context, dir, bench string, cpu int, how options) (r round, err error) {
	var all [len(versions)]*turns.Process
	defer func() {
		for _, p := range all {
			if p != nil {
				err = errors.Join(err, p.Close())
			}
		}
	}()
	order := rand.Perm(len(versions))
	for _, i := range order {
		if all[i], err = turns.Start(filepath.Join(dir, versions[i]+"-"+bench), cpu); err != nil {
			return r, err
		}
	}
	for _, p := range all {
		if err := p.Ready(); err != nil {
			return r, err
		}
	}
	r.samples = map[string]*samples{}
	for _, name := range all[0].Names {
		if !how.class.MatchString(name) {
			continue
		}
		s := &samples{}
		r.names, r.samples[name] = append(r.names, name), s
		for turn := -1; turn < how.turns; turn++ { // the first is to warm up
			rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			for _, i := range order {
				nanos, err := all[i].Measure(name)
				if err := errors.Join(err, ctx.Err()); err != nil {
					return r, err
				}
				if turn >= 0 {
					s[i] = append(s[i], nanos)
				}
			}
		}
	}
	return r, nil
}
