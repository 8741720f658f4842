// Package audit writes the audit log: who changed what, and what was refused to whom.
//
// A Call travels in the context of a request. Begin notes its procedure and subject, End its result, and Log.Record
// queues an entry when the request ends: of a change that succeeded, and of each refusal. Log.Run writes the queue in
// batches.
//
// Invariants:
//   - no caller's refusals drive entries of others out: they are limited by caller, and by address if nobody is known;
//   - what was not queued is counted in an entry of its own.
package audit
