package store

import (
	"fmt"
	"time"

	"github.com/weirlb/weir/internal/model"
)

// fastpathKeyDocument is a key of Fastpath.
type fastpathKeyDocument struct {
	ID     uint32    `json:"id"`
	Made   time.Time `json:"made"`
	Secret []byte    `json:"secret"`
}

func fastpathKeysToDocument(keys []model.FastpathKey) []fastpathKeyDocument {
	var documents []fastpathKeyDocument
	for _, k := range keys {
		documents = append(documents, fastpathKeyDocument{ID: k.ID, Made: k.Made, Secret: k.Secret[:]})
	}
	return documents
}

func fastpathKeysFromDocument(documents []fastpathKeyDocument) ([]model.FastpathKey, error) {
	var keys []model.FastpathKey
	for _, d := range documents {
		k := model.FastpathKey{ID: d.ID, Made: d.Made}
		if copy(k.Secret[:], d.Secret) != len(d.Secret) || len(d.Secret) != len(k.Secret) {
			return nil, fmt.Errorf("read %s of the store: key %d has %d bytes", keyFastpath, d.ID, len(d.Secret))
		}
		keys = append(keys, k)
	}
	return keys, nil
}
