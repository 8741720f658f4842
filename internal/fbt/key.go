package fbt

import (
	"crypto/hmac"
	"crypto/sha256"
)

// Keys is how many keys of a host are told apart: two bits of the option.
const Keys = 4

// Key makes and checks the options of one receiving host.
type Key struct {
	Secret [16]byte
	ID     uint32 // counts up with each rotation; 0: none
}

// Master is what keys of hosts are derived from. Muxes have it; a host has only its own keys, so it cannot forge for
// another one.
type Master struct {
	Secret [32]byte
	ID     uint32
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
