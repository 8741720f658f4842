/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds the endpoint of a packet and the rows of its slices. */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "lib/mux_tables.h"
#include "lib/packet.h"

/* The row of exactly this key, or NULL. */
static __always_inline struct endpoint *endpoint_at(const struct address *vip, __u8 protocol,
						    __be16 port)
{
	struct endpoint_key key = {
		.vip = *vip,
		.port = port,
		.protocol = protocol,
	};

	return bpf_map_lookup_elem(&endpoints, &key);
}

/* The endpoint that takes the VIP's packets to the port. Sets *port to that of its key. */
static __always_inline struct endpoint *endpoint_of(const struct address *vip, __u8 protocol,
						    __be16 *port)
{
	struct endpoint *endpoint = endpoint_at(vip, protocol, *port);

	if (endpoint || !(pool.flags & POOL_ALL_PORTS))
		return endpoint;
	*port = 0;
	return endpoint_at(vip, protocol, 0);
}

/* The row of the VIP itself, or NULL when the address is none. */
static __always_inline struct endpoint *vip_of(const struct address *vip)
{
	return endpoint_at(vip, 0, 0);
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
	choice.slot = current->slots[bucket % BUCKETS_PER_ROW];
	if (!(choice.slot & BUCKET_HAS_PREVIOUS))
		return choice;
	choice.slot &= BUCKET_SLOT_MASK;
	rows = (1U << bits) / BUCKETS_PER_ROW;
	row += rows ? rows : 1;
	previous = bpf_map_lookup_elem(&buckets, &row);
	if (previous)
		choice.previous = previous->slots[bucket % BUCKETS_PER_ROW] & BUCKET_SLOT_MASK;
	return choice;
}

/* The slot that the hash's bucket names now, or 0. */
static __always_inline __u32 bucket_slot(__u64 slices, __u32 hash)
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
	return current->slots[bucket % BUCKETS_PER_ROW] & BUCKET_SLOT_MASK;
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
