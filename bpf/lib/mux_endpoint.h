/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds the endpoint of a packet and the rows of its slices. */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "lib/mux_tables.h"
#include "lib/packet.h"

static __always_inline struct endpoint *endpoint_of(const struct packet *p)
{
	struct endpoint_key key = {
		.vip = p->destination,
		.port = p->destination_port,
		.protocol = p->protocol,
	};

	return bpf_map_lookup_elem(&endpoints, &key);
}

/* The slot that the hash's bucket names, or 0. */
static __always_inline __u32 bucket_slot(__u64 slices, __u32 hash)
{
	__u32 bits = slices >> ENDPOINT_BUCKET_BITS_SHIFT & 31;
	__u32 bucket, row = slices & ((1U << ENDPOINT_BUCKET_BITS_SHIFT) - 1);
	struct bucket_row *buckets_of;

	if (bits == ENDPOINT_NO_BUCKETS)
		return 0;
	bucket = hash & ((1U << bits) - 1);
	row += bucket / BUCKETS_PER_ROW;
	buckets_of = bpf_map_lookup_elem(&buckets, &row);
	if (!buckets_of)
		return 0;
	return buckets_of->slots[bucket % BUCKETS_PER_ROW];
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
