package announce

import (
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/trust"
)

// overrides are the routes of VIPs that an overload action withdraws, or diverts to a scrubber.
type overrides map[netip.Addr]model.VIPRoute

func newOverrides(list []model.VIPRoute) overrides {
	o := make(overrides, len(list))
	for _, route := range list {
		o[route.VIP] = route
	}
	return o
}

// logChanges logs which VIPs are announced otherwise than before.
func (o overrides) logChanges(before overrides, log *slog.Logger) {
	for vip, route := range o {
		if was, had := before[vip]; !had || !route.Equal(was) {
			log.Warn("a vip is not announced as usual", "vip", vip, "action", route.Action)
		}
	}
	for vip := range before {
		if _, is := o[vip]; !is {
			log.Info("a vip is announced as usual again", "vip", vip)
		}
	}
}

func (o overrides) equal(other overrides) bool {
	return maps.EqualFunc(o, other, model.VIPRoute.Equal)
}

// loadOverrides reads what save wrote, so that a restart announces the same routes; none if it can't.
func loadOverrides(path string, log *slog.Logger) overrides {
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var list []model.VIPRoute
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		log.Warn("which vips are not announced as usual is lost: all are, until the manager is reached",
			"file", path, "err", err)
		return nil
	}
	return newOverrides(list)
}

// save replaces the file.
func (o overrides) save(path string) error {
	if path == "" {
		return nil
	}
	list := slices.SortedFunc(maps.Values(o), func(a, b model.VIPRoute) int { return a.VIP.Compare(b.VIP) })
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return trust.WriteFile(path, append(text, '\n'))
}
