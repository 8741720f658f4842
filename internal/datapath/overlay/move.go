package overlay

import "sync/atomic"

// MoveSession has the answers to a session's client go to another host, by its number; false: its row is another session's.
func (t *Table) MoveSession(s Session, host uint32) bool {
	set := &t.sets[s.Row/Ways]
	if atomic.LoadUint32(&set.tags[s.Row%Ways]) != s.tag {
		return false
	}
	atomic.StoreUint32(&set.rows[s.Row%Ways].host, host)
	return true
}
