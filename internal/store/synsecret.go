package store

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/weirlb/weir/internal/model"
)

// synSecretDocument is a secret of SYN cookies.
type synSecretDocument struct {
	ID     uint32    `json:"id"`
	Made   time.Time `json:"made"`
	Secret []byte    `json:"secret"`
}

func synSecretsToDocument(secrets []model.SYNSecret) []synSecretDocument {
	var documents []synSecretDocument
	for _, s := range secrets {
		documents = append(documents, synSecretDocument{ID: s.ID, Made: s.Made, Secret: s.Secret[:]})
	}
	return documents
}

func synSecretsFromDocument(documents []synSecretDocument) ([]model.SYNSecret, error) {
	var secrets []model.SYNSecret
	for _, d := range documents {
		s := model.SYNSecret{ID: d.ID, Made: d.Made}
		if len(d.Secret) != len(s.Secret) {
			return nil, fmt.Errorf("read %s of the store: secret %d has %d bytes", keySYNSecrets, d.ID, len(d.Secret))
		}
		copy(s.Secret[:], d.Secret)
		secrets = append(secrets, s)
	}
	return secrets, nil
}

// DrawSYNSecret draws what a new secret of SYN cookies is.
func DrawSYNSecret() (secret [16]byte) {
	_, _ = rand.Read(secret[:]) // never fails
	return secret
}
