package rpc

import (
	"fmt"
	"sync"

	"github.com/weirlb/weir/internal/model"
)

// Fence keeps the highest epoch and generation that a node has seen, of whichever manager, and refuses
// what is older: a manager that was frozen for minutes sends what is long past. An epoch of 0 is one that
// the manager does not know, or can't tell.
type Fence struct {
	mu         sync.Mutex
	epoch      model.Epoch
	generation model.Generation
}

// NewFence makes the fence of a node that runs a generation.
func NewFence(generation model.Generation) *Fence { return &Fence{generation: generation} }

// StaleError says that a manager is behind what the node has seen.
type StaleError struct{ reason string }

func (e *StaleError) Error() string {
	return e.reason + ": this manager is behind, going to another"
}

// Pass takes over what a message says, or refuses it.
func (f *Fence) Pass(epoch model.Epoch, generation model.Generation) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if epoch != 0 && epoch < f.epoch {
		return &StaleError{fmt.Sprintf("refuse epoch %d, epoch %d was seen", epoch, f.epoch)}
	}
	if generation < f.generation {
		return &StaleError{fmt.Sprintf("refuse generation %d, generation %d was seen", generation, f.generation)}
	}
	f.epoch, f.generation = max(f.epoch, epoch), generation
	return nil
}

// Seen returns the highest epoch and generation.
func (f *Fence) Seen() (model.Epoch, model.Generation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.epoch, f.generation
}
