package health

import "time"

// firstWindow bounds the wait for a backend's first check: until its result the backend gets no
// traffic.
const firstWindow = 500 * time.Millisecond

// First returns how long to wait before the first check of a backend, for jitter in [0, 1): at
// most the interval and at most half a second, so that backends that come together are spread.
func First(interval time.Duration, jitter float64) time.Duration {
	return time.Duration(jitter * float64(min(interval, firstWindow)))
}

// Next returns the time between the starts of one check and the next, for jitter in [0, 1): the
// interval, or up to a tenth less. Checks that began together drift apart, and none is later
// than its owner asked for.
func Next(interval time.Duration, jitter float64) time.Duration {
	return interval - time.Duration(jitter*float64(interval/10))
}
