// Package block gives ranges of a host's port block to its workloads, as long as each needs them. It computes only: its
// caller has the lock, the clock (CLOCK_BOOTTIME, by which a machine that slept has rested too) and the tables.
//
// Invariants:
//   - A range is in one workload's hands at most.
//   - A range that one workload had goes to another only after snatport.QuarantineTime, so that late packets of the first
//     one's connections reach nobody else. To its last workload it may return at once.
//   - What the process knows of rest ends with it. So a range that comes otherwise than by an answer that says that it is
//     freshly given rests anew, unless the tables show a workload that has it.
//   - The manager's reclaim, and what is offered to it, is given to nobody.
package block
