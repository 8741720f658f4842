package codec

import (
	"fmt"
	"time"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/model"
)

// SecretDocument is a key of Fastpath, a master of keys of FBTs, or a secret of SYN cookies.
type SecretDocument struct {
	ID     uint32    `json:"id"`
	Made   time.Time `json:"made"`
	Secret []byte    `json:"secret"`
}

// copyTo makes secret the one of the document.
func (d SecretDocument) copyTo(secret []byte) error {
	if len(d.Secret) != len(secret) {
		return fmt.Errorf("secret %d has %d bytes", d.ID, len(d.Secret))
	}
	copy(secret, d.Secret)
	return nil
}

// DecodeSecrets returns the secrets that lie under a key.
func DecodeSecrets[T any](key string, value []byte, secrets func([]SecretDocument) ([]T, error)) ([]T, error) {
	documents, err := Decode[[]SecretDocument](key, value)
	if err != nil {
		return nil, err
	}
	return secrets(documents)
}

// NewFastpathKeys are the documents of keys of Fastpath.
func NewFastpathKeys(keys []model.FastpathKey) []SecretDocument {
	documents := make([]SecretDocument, 0, len(keys))
	for _, k := range keys {
		documents = append(documents, SecretDocument{ID: k.ID, Made: k.Made, Secret: k.Secret[:]})
	}
	return documents
}

// FastpathKeys are the keys of documents.
func FastpathKeys(documents []SecretDocument) (keys []model.FastpathKey, err error) {
	for _, d := range documents {
		k := model.FastpathKey{ID: d.ID, Made: d.Made}
		if err := d.copyTo(k.Secret[:]); err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// NewFBTMasters are the documents of masters of keys of FBTs.
func NewFBTMasters(masters []fbt.Master) []SecretDocument {
	documents := make([]SecretDocument, 0, len(masters))
	for _, m := range masters {
		documents = append(documents, SecretDocument{ID: m.ID, Made: m.Made, Secret: m.Secret[:]})
	}
	return documents
}

// FBTMasters are the masters of documents.
func FBTMasters(documents []SecretDocument) (masters []fbt.Master, err error) {
	for _, d := range documents {
		m := fbt.Master{ID: d.ID, Made: d.Made}
		if err := d.copyTo(m.Secret[:]); err != nil {
			return nil, err
		}
		masters = append(masters, m)
	}
	return masters, nil
}

// NewSYNSecrets are the documents of secrets of SYN cookies.
func NewSYNSecrets(secrets []model.SYNSecret) []SecretDocument {
	documents := make([]SecretDocument, 0, len(secrets))
	for _, s := range secrets {
		documents = append(documents, SecretDocument{ID: s.ID, Made: s.Made, Secret: s.Secret[:]})
	}
	return documents
}

// SYNSecrets are the secrets of documents.
func SYNSecrets(documents []SecretDocument) (secrets []model.SYNSecret, err error) {
	for _, d := range documents {
		s := model.SYNSecret{ID: d.ID, Made: d.Made}
		if err := d.copyTo(s.Secret[:]); err != nil {
			return nil, err
		}
		secrets = append(secrets, s)
	}
	return secrets, nil
}
