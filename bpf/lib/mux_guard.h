/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What stands between a packet and its endpoint: which sources it takes. Only endpoints that have
 * such a thing pay for it: a flag of the row, which is loaded anyway, says so.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "abi/mux_guard.h"
#include "lib/mux_tables.h"
#include "lib/mux_work.h"

/*
 * Prefixes of all lists. Written by user space: a list that a row of `guards` names changes only by
 * being replaced. Bounded by user space, which counts; memory is taken as rows come.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1 << 20);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct source_key);
	__type(value, __u8);
} sources SEC(".maps");

/* By the endpoint's id. Of an endpoint without ENDPOINT_SOURCES nobody reads the row. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16385);
	__uint(map_flags, BPF_F_MMAPABLE); /* to store a word at once */
	__type(key, __u32);
	__type(value, struct guard);
} guards SEC(".maps");

/* A packet that asks to get through. */
struct guarded {
	struct address source;
	__u32 id; /* of the endpoint */
	__u32 pad;
};

static __always_inline bool source_is_listed(__u32 list, const struct address *source)
{
	struct source_key key = {
		.length = 8 * (sizeof(key.list) + sizeof(key.address)),
		.list = list << SOURCE_LIST_SHIFT,
		.address = *source,
	};

	if (address_is_v4(source)) {
		key.list |= SOURCE_LIST_V4;
		key.address.words[0] = source->words[3];
		key.address.words[2] = 0;
		key.address.words[3] = 0;
	}
	return bpf_map_lookup_elem(&sources, &key);
}

/* A function of its own that gives back a number: the verifier walks it once. */
__noinline int guard_refuses(const struct guarded *g)
{
	struct guard *guard;
	__u32 allow, deny, id;
	__u64 lists;

	if (!g)
		return 0;
	id = g->id;
	guard = bpf_map_lookup_elem(&guards, &id);
	if (!guard)
		return 0;
	lists = *(volatile __u64 *)&guard->lists;
	allow = lists;
	deny = lists >> 32;
	if (deny && source_is_listed(deny, &g->source))
		return 1;
	return allow && !source_is_listed(allow, &g->source);
}

/* May the packet go on to its endpoint? */
static __always_inline enum verdict guard(const struct work *w)
{
	struct guarded g;

	if (!(w->endpoint->flags & ENDPOINT_SOURCES))
		return VERDICT_NONE;
	g.source = w->packet.source;
	g.id = w->endpoint->id;
	g.pad = 0;
	return guard_refuses(&g) ? VERDICT_DROP_SOURCE : VERDICT_NONE;
}
