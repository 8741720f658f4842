package bucket

// Bounds of a table, and how many buckets a member should have for its share to come out well:
// with 100, a member is off by at most one percent of its share.
const (
	MinSize   = 256
	MaxSize   = 65536
	perMember = 100
)

// Size is the size of a table for that many members, a power of two from MinSize to MaxSize. It
// is never less than current, the size of the table so far (0: none): tables only grow.
func Size(current, members int) int {
	size := max(current, MinSize)
	for size < perMember*members && size < MaxSize {
		size *= 2
	}
	return size
}
