package overload

// Drops tells packets that were lost from those that nobody wanted. The kernel counts both as dropped on receipt: what a
// driver had no room for, and frames that the program has passed and for whose protocol there is no handler
// (__netif_receive_skb_core in net/core/dev.c), with some drivers also those that the program has dropped. The zero value
// has counted none.
type Drops struct {
	known         bool
	dropped       uint64
	passed, ahead uint64 // by the program; ahead: of late, and not counted as dropped yet
	lost          uint64
}

// Lost is how many have been lost since the first call. So many were dropped so far, and so many had passed the program that
// may be counted among them, which is read after it. What has passed the program is not lost, whatever the kernel does with
// it; it may be counted a moment later.
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
