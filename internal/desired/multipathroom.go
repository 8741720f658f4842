package desired

import (
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/multipath"
	"github.com/weirlb/weir/internal/sorted"
)

// multipathRooms say by host what endpoints with multipath need of it.
type multipathRooms struct {
	sorted.Map[string, multipath.Room]
}

// ReplaceVIP has vip take its room in the place of old.
func (r *multipathRooms) ReplaceVIP(old, vip model.VIP) {
	was, is := multipath.RoomOf(old), multipath.RoomOf(vip)
	for host, room := range was {
		if is[host] != room {
			r.set(host, r.At(host).Minus(room).Plus(is[host]))
		}
	}
	for host, room := range is {
		if _, had := was[host]; !had {
			r.set(host, r.At(host).Plus(room))
		}
	}
}

func (r *multipathRooms) set(host string, room multipath.Room) {
	if room == (multipath.Room{}) {
		r.Delete(host)
		return
	}
	r.Set(host, room)
}

// MultipathOn is what endpoints with multipath need of a host.
func (s State) MultipathOn(host string) multipath.Room { return s.multipathRooms.At(host) }
