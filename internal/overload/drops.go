package overload

// Drops tells packets that were lost from those that nobody wanted. The kernel counts both as dropped on receipt: what a
// driver had no room for, and frames that the program has passed and for whose protocol there is no handler
// (__netif_receive_skb_core in net/core/dev.c). The zero value has counted none.
type Drops struct {
	known         bool
	dropped       uint64
	passed, ahead uint64 // ahead: passed of late, and not dropped yet
	lost          uint64
}

// Lost is how many have been lost since the first call. So many were dropped so far, and passed as they are not IP, which is
// read after it. What was passed is not lost, whatever the kernel does with it; a packet may be dropped a moment later.
func (d *Drops) Lost(dropped, passed uint64) uint64 {
	if !d.known || dropped < d.dropped || passed < d.passed { // the interface is another, or the program
		*d = Drops{known: true, dropped: dropped, passed: passed, lost: d.lost}
		return d.lost
	}
	drops, passes := dropped-d.dropped, passed-d.passed
	d.lost += drops - min(drops, passes+d.ahead)
	d.dropped, d.passed, d.ahead = dropped, passed, passes-min(passes, drops)
	return d.lost
}
