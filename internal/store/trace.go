package store

import (
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/telemetry"
)

// Trace names the trace that a change of the desired state is part of.
type Trace struct {
	Generation model.Generation // that holds the change
	Parent     string           // traceparent of W3C's Trace Context
}

// maxTraces bounds how many traces a State remembers, the newest.
const maxTraces = 64

// generationDocument is the value of the generation: any replica takes a change's trace up from there.
type generationDocument struct {
	Traces []string `json:"traces,omitempty"`
}

// putTraces notes the traces of a generation.
func (s *State) putTraces(key string, kv *mvccpb.KeyValue) error {
	d, err := codec.Decode[generationDocument](key, kv.Value)
	if err != nil || len(d.Traces) == 0 {
		return err
	}
	traces := slices.Clone(s.Traces) // other States share it
	for _, parent := range d.Traces {
		traces = append(traces, Trace{model.Generation(kv.ModRevision), parent})
	}
	s.Traces = traces[max(0, len(traces)-maxTraces):]
	return nil
}

// TracesIn are the parents of the changes after one generation and up to another.
func (s *State) TracesIn(after, to model.Generation) []string {
	var parents []string
	for _, t := range s.Traces {
		if t.Generation > after && t.Generation <= to {
			parents = append(parents, t.Parent)
		}
	}
	return parents
}

// traces are the parents of what was folded.
func (f *folded) traces() []string {
	var parents []string
	for i, w := range f.writes {
		if parent := telemetry.Parent(w.ctx); parent != "" && f.errs[i] == nil && len(parents) < telemetry.MaxParents {
			parents = append(parents, parent)
		}
	}
	return parents
}

// span begins a span of each change that was folded, and returns what ends them.
func (f *folded) span(name string) func(error) {
	var ends []func(error)
	for _, w := range f.writes {
		_, end := telemetry.Span(w.ctx, name)
		ends = append(ends, end)
	}
	return func(err error) {
		for _, end := range ends {
			end(err)
		}
	}
}
