/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The way back of source NAT: a packet to a VIP's port that no endpoint has goes to the workload
 * that the port's range belongs to. No state of flows: every mux finds the same.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "abi/mux/snat.h"
#include "mux/maps.h"

/* The owner of the port of the VIP whose row has these slices; NULL: the port is free. */
static __always_inline struct backend *snat_owner(__u64 slices, __be16 port)
{
	__u32 range = bpf_ntohs(port) >> SNAT_RANGE_SHIFT, owner;
	__u32 row = slices & ((1U << ENDPOINT_BUCKET_BITS_SHIFT) - 1);
	struct snat_row *owners;

	row += range / SNAT_RANGES_PER_ROW;
	owners = bpf_map_lookup_elem(&snat_ranges, &row);
	if (!owners)
		return NULL;
	owner = *(volatile __u32 *)&owners->owners[range % SNAT_RANGES_PER_ROW];
	return owner ? bpf_map_lookup_elem(&snat_owners, &owner) : NULL;
}
