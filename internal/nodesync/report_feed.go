package nodesync

import "container/list"

// reportFeed is the order in which reports of nodes became due for the other managers: each node is in it once, where its
// newest one is. Who follows remembers a place in it, so nothing queues.
type reportFeed struct {
	order *list.List // of fed, the newest last
	at    map[string]*list.Element
	last  uint64        // place of the newest
	more  chan struct{} // closed when there is another one

	followers map[string]int // other managers with a stream of it, by name
}

// fed is a node with a report that became due.
type fed struct {
	node  string
	place uint64
}

func newReportFeed() reportFeed {
	return reportFeed{order: list.New(), at: map[string]*list.Element{}, more: make(chan struct{}), followers: map[string]int{}}
}

// add puts a node last.
func (f *reportFeed) add(node string) {
	f.remove(node)
	f.last++
	f.at[node] = f.order.PushBack(fed{node, f.last})
	close(f.more)
	f.more = make(chan struct{})
}

func (f *reportFeed) remove(node string) {
	if e, there := f.at[node]; there {
		f.order.Remove(e)
		delete(f.at, node)
	}
}

// after returns the nodes after a place, the oldest first.
func (f *reportFeed) after(place uint64) []string {
	var nodes []string
	e := f.order.Back()
	for e != nil && e.Value.(fed).place > place { //nolint:forcetypeassert // it holds nothing else
		e = e.Prev()
	}
	if e == nil {
		e = f.order.Front()
	} else {
		e = e.Next()
	}
	for ; e != nil; e = e.Next() {
		nodes = append(nodes, e.Value.(fed).node) //nolint:forcetypeassert // it holds nothing else
	}
	return nodes
}
