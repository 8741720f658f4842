package bucket

// Bounds of a table, and how many buckets a backend should have for its share to come out well:
// with 100, a backend is off by at most one percent of its share.
const (
	MinSize    = 256
	MaxSize    = 65536
	perBackend = 100
)

// Size is the size of a table for that many backends, a power of two from MinSize to MaxSize. It
// is never less than current, the size of the table so far (0: none): tables only grow.
func Size(current, backends int) int {
	size := max(current, MinSize)
	for size < perBackend*backends && size < MaxSize {
		size *= 2
	}
	return size
}
