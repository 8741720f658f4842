// Package events records what happens to resources, as in Kubernetes: an object, a reason and a message, repeated
// events folded into a count. Recorder queues events and writes them in batches; it never waits for the store.
package events
