package fbt

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"time"
)

// Keys is how many keys of a host are told apart: two bits of the option.
const Keys = 4

// Key makes and checks the options of one receiving host.
type Key struct {
	Secret [16]byte
	ID     uint32 // counts up with each rotation; 0: none
}

// String does not tell the secret.
func (k Key) String() string { return fmt.Sprintf("fbt key %d", k.ID) }

// Master is what keys of hosts are derived from. Muxes have it; a host has only its own keys, so it cannot forge for
// another one.
type Master struct {
	Secret [32]byte
	ID     uint32
	Made   time.Time
}

// String does not tell the secret.
func (m Master) String() string { return fmt.Sprintf("fbt master %d", m.ID) }

// Masters is how many are valid at a time: the one before, that whose keys make options, and the next one, which all
// know before it does.
const Masters = 3

// Makes is the id of the keys that make options, of masters in order: those of the last but one, or of all that there is.
// It is 0 of none.
func Makes(masters []Master) uint32 {
	switch n := len(masters); n {
	case 0:
		return 0
	case 1:
		return masters[0].ID
	default:
		return masters[n-2].ID
	}
}

// NextMasters are the masters that follow; nil: those that there are will do. The newest is known for a whole life before
// its keys make an option, and the oldest was the last that did.
func NextMasters(masters []Master, now time.Time, life time.Duration, draw func() [32]byte) []Master {
	if len(masters) >= 2 && now.Sub(masters[len(masters)-1].Made) < life {
		return nil
	}
	next := append([]Master(nil), masters...)
	for added := false; !added || len(next) < 2; added = true {
		master := Master{ID: 1, Made: now.UTC().Truncate(time.Second), Secret: draw()}
		if len(next) > 0 {
			master.ID = next[len(next)-1].ID + 1
		}
		next = append(next, master)
	}
	return next[max(0, len(next)-Masters):]
}

// HostKey derives the key of a host, by its name: the first half of HMAC-SHA256.
func (m Master) HostKey(host string) Key {
	h := hmac.New(sha256.New, m.Secret[:])
	h.Write([]byte("weir fbt key\x00" + host))
	return Key{Secret: [16]byte(h.Sum(nil)[:16]), ID: m.ID}
}

// HostKeys derives the keys of a host from each master. Options name a key by two bits of its id, so of masters whose
// ids share them the later one counts.
func HostKeys(masters []Master, host string) []Key {
	var rows [Keys]Key
	for _, m := range masters {
		row := &rows[m.ID%Keys]
		if m.ID != 0 && m.ID > row.ID {
			*row = m.HostKey(host)
		}
	}
	var keys []Key
	for _, key := range rows {
		if key.ID != 0 {
			keys = append(keys, key)
		}
	}
	return keys
}
