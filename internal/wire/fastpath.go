package wire

import (
	"fmt"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

func keysToProto(keys []model.FastpathKey) []*weirv1.FastpathKey {
	all := make([]*weirv1.FastpathKey, 0, len(keys))
	for _, k := range keys {
		all = append(all, &weirv1.FastpathKey{Id: k.ID, Secret: k.Secret[:]})
	}
	return all
}

// keys reads what keysToProto wrote. What is refused must not tell a secret.
func (f *fields) keys(path string, list []*weirv1.FastpathKey) []model.FastpathKey {
	var keys []model.FastpathKey
	for i, p := range list {
		k := model.FastpathKey{ID: p.GetId()}
		if p.GetId() == 0 || len(p.GetSecret()) != len(k.Secret) {
			f.Refuse(fmt.Sprintf("%s[%d]", path, i), "must have an id and a secret of %d bytes", len(k.Secret))
			continue
		}
		copy(k.Secret[:], p.GetSecret())
		keys = append(keys, k)
	}
	return keys
}
