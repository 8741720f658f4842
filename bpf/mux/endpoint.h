/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds the endpoint of a packet and the rows of its slices. */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "mux/maps.h"
#include "net/packet.h"

/* Number of words of endpoint_index, a power of two, less one. Set at load to fit the map. */
volatile const __u32 cfg_endpoint_index_mask = 65535;

/* A struct endpoint_key in 64-bit words: loads of these are not forwarded from smaller stores. */
struct endpoint_words {
	__u64 vip[2];
	__u64 port_and_protocol;
};

_Static_assert(sizeof(struct endpoint_words) == sizeof(struct endpoint_key), "endpoint_words");

static __always_inline struct endpoint_words endpoint_words(const struct address *vip,
							    __u8 protocol, __be16 port)
{
	const __u32 *w = vip->words;
	struct endpoint_words words = {
		.vip = { w[0] | (__u64)w[1] << 32, w[2] | (__u64)w[3] << 32 },
		.port_and_protocol = port | (__u32)protocol << 16,
	};

	return words;
}

/* The row in the kernel's hash table, or NULL. */
static __always_inline struct endpoint *endpoint_search(struct endpoint_words words)
{
	return bpf_map_lookup_elem(&endpoints, &words);
}

/* The word of endpoint_index for a key. internal/datapath/mux/viprow/index.go is its twin. */
static __always_inline __u32 endpoint_index_of(struct endpoint_words words)
{
	__u64 hash = (words.vip[0] ^ words.port_and_protocol) * 0x9e3779b97f4a7c15ULL +
		     words.vip[1] * 0xff51afd7ed558ccdULL;

	return hash >> 32 & cfg_endpoint_index_mask;
}

/* The row of exactly this key, or NULL. */
static __always_inline struct endpoint *endpoint_at(const struct address *vip, __u8 protocol,
						    __be16 port)
{
	struct endpoint_words words = endpoint_words(vip, protocol, port);
	__u32 index = endpoint_index_of(words), row = index / ENDPOINT_INDEX_PER_ROW, id;
	struct endpoint_index_row *ids = bpf_map_lookup_elem(&endpoint_index, &row);
	const struct endpoint_words *key;
	struct endpoint_row *found;
	struct endpoint *collided;

	if (!ids)
		return NULL;
	id = ids->ids[index % ENDPOINT_INDEX_PER_ROW];
	if (id == ENDPOINT_INDEX_NONE)
		return NULL;
	if (id == ENDPOINT_INDEX_COLLISION) {
		collided = endpoint_search(words);
		if (!collided)
			return NULL;
		id = collided->id;
	}
	found = bpf_map_lookup_elem(&endpoint_rows, &id);
	if (!found)
		return NULL;
	key = (const void *)&found->key;
	if (key->vip[0] != words.vip[0] || key->vip[1] != words.vip[1] ||
	    key->port_and_protocol != words.port_and_protocol)
		return NULL;
	return &found->endpoint;
}

/*
 * The endpoint that takes the VIP's packets to the port, else the row of a VIP with source NAT.
 * Sets *port to that of the endpoint's key.
 */
static __always_inline struct endpoint *endpoint_of(const struct address *vip, __u8 protocol,
						    __be16 *port)
{
	struct endpoint *endpoint = endpoint_at(vip, protocol, *port);

	if (endpoint || !(settings.flags & (SETTINGS_ALL_PORTS | SETTINGS_SNAT)))
		return endpoint;
	if (settings.flags & SETTINGS_ALL_PORTS) {
		endpoint = endpoint_at(vip, protocol, 0);
		if (endpoint) {
			*port = 0;
			return endpoint;
		}
	}
	if (!(settings.flags & SETTINGS_SNAT))
		return NULL;
	return endpoint_at(vip, 0, 0);
}

/* The row of the VIP itself, or NULL when the address is none. */
static __always_inline struct endpoint *vip_of(const struct address *vip)
{
	return endpoint_search(endpoint_words(vip, 0, 0));
}

/* What a bucket names. */
struct choice {
	__u32 slot; /* 0: none */
	__u32 previous; /* 0: none */
};

static __always_inline struct choice bucket_choice(__u64 slices, __u32 hash)
{
	__u32 bits = slices >> ENDPOINT_BUCKET_BITS_SHIFT & 31;
	__u32 bucket, rows, row = slices & ((1U << ENDPOINT_BUCKET_BITS_SHIFT) - 1);
	struct bucket_row *current, *previous;
	struct choice none = {};
	struct choice choice = {};

	if (bits == ENDPOINT_NO_BUCKETS)
		return none;
	bucket = hash & ((1U << bits) - 1);
	row += bucket / BUCKETS_PER_ROW;
	current = bpf_map_lookup_elem(&buckets, &row);
	if (!current)
		return none;
	choice.slot = current->slots[bucket % BUCKETS_PER_ROW] & SLOT_MASK;
	if (!(current->slots[bucket % BUCKETS_PER_ROW] & BUCKET_HAS_PREVIOUS))
		return choice;
	rows = (1U << bits) / BUCKETS_PER_ROW;
	row += rows ? rows : 1;
	previous = bpf_map_lookup_elem(&buckets, &row);
	if (previous)
		choice.previous = previous->slots[bucket % BUCKETS_PER_ROW] & SLOT_MASK;
	return choice;
}

/* The hash's bucket as it stands in its row: slot and flags. 0: the endpoint has none. */
static __always_inline __u32 bucket_word(__u64 slices, __u32 hash)
{
	__u32 bits = slices >> ENDPOINT_BUCKET_BITS_SHIFT & 31;
	__u32 bucket, row = slices & ((1U << ENDPOINT_BUCKET_BITS_SHIFT) - 1);
	struct bucket_row *current;

	if (bits == ENDPOINT_NO_BUCKETS)
		return 0;
	bucket = hash & ((1U << bits) - 1);
	row += bucket / BUCKETS_PER_ROW;
	current = bpf_map_lookup_elem(&buckets, &row);
	if (!current)
		return 0;
	return current->slots[bucket % BUCKETS_PER_ROW];
}

/* The slot that the hash's bucket names now, or 0. */
static __always_inline __u32 bucket_slot(__u64 slices, __u32 hash)
{
	return bucket_word(slices, hash) & SLOT_MASK;
}

/* The backend of the slot, or NULL when the endpoint has none there. */
static __always_inline struct backend *backend_at(__u64 slices, __u32 slot)
{
	__u32 bits = slices >> ENDPOINT_SLOT_BITS_SHIFT;
	__u32 row = slices >> ENDPOINT_FIRST_BACKEND_SHIFT &
		    ((1U << (ENDPOINT_SLOT_BITS_SHIFT - ENDPOINT_FIRST_BACKEND_SHIFT)) - 1);
	struct backend *backend;

	if (slot >> bits)
		return NULL;
	row += slot;
	backend = bpf_map_lookup_elem(&backends, &row);
	if (!backend || !(backend->flags & BACKEND_VALID))
		return NULL;
	return backend;
}

/* The slot's backend if a connection can still be there. */
static __always_inline struct backend *backend_alive(__u64 slices, __u32 slot)
{
	struct backend *backend = backend_at(slices, slot);

	if (!backend || backend->flags & BACKEND_DOWN)
		return NULL;
	return backend;
}
