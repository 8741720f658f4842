package eventlog

// What tests of the log with a store know.
const (
	MaxEvents  = maxEvents
	PruneAfter = pruneAfter
)

// Excess says which events are too many.
var Excess = excess

// Knows says whether a recorder knows what is stored without reading it.
func (r *Recorder) Knows() bool { return r.known != nil }
