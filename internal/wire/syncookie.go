package wire

import (
	"fmt"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

func synSecretsToProto(secrets []model.SYNSecret) []*weirv1.SYNSecret {
	all := make([]*weirv1.SYNSecret, 0, len(secrets))
	for _, s := range secrets {
		all = append(all, &weirv1.SYNSecret{Id: s.ID, Secret: s.Secret[:]})
	}
	return all
}

// synSecrets reads what synSecretsToProto wrote. What is refused must not tell a secret.
func (f *fields) synSecrets(path string, list []*weirv1.SYNSecret) []model.SYNSecret {
	var secrets []model.SYNSecret
	for i, p := range list {
		s := model.SYNSecret{ID: p.GetId()}
		if p.GetId() == 0 || len(p.GetSecret()) != len(s.Secret) {
			f.Refuse(fmt.Sprintf("%s[%d]", path, i), "must have an id and a secret of %d bytes", len(s.Secret))
			continue
		}
		copy(s.Secret[:], p.GetSecret())
		secrets = append(secrets, s)
	}
	return secrets
}
