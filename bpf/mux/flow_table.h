/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The flow table: remembers which slot a flow was sent to. abi/mux/flow.h has its layout.
 * CPUs share it without locks: what a packet is sent by is one word, and a write that another
 * undoes is made good by the flow's next packet. Usage is exact all the same.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "abi/mux/flow.h"
#include "mux/trace.h"
#include "mux/maps.h"

/* How many ticks an untrusted flow is remembered at most: 30 s. Set at load, by the length of a
 * tick. */
volatile const __u32 cfg_flow_untrusted_ticks = 469;

/* Number of sets less one; the number is a power of two. Set at load to fit the map. */
volatile const __u32 cfg_flow_set_mask = 262143;

static __always_inline struct flow_set *flow_set_of(__u64 hash)
{
	__u32 row = hash & cfg_flow_set_mask;

	return bpf_map_lookup_elem(&flows, &row);
}

/* The flow's tag in its set: the upper bits of a cell's first word. */
static __always_inline __u64 flow_tag(__u64 hash, __u64 salt)
{
	return (hash ^ salt) >> FLOW_TAG_SHIFT << FLOW_TAG_SHIFT;
}

static __always_inline bool flow_matches(__u64 flow, __u64 tag)
{
	return (flow ^ tag) >> SLOT_BITS == 0; /* so no SYN is noted */
}

/* Jiffies, because they are a plain load: a call for the time costs a tenth of a packet. */
static __always_inline __u32 flow_now(void)
{
	return bpf_jiffies64() >> FLOW_TICK_SHIFT;
}

static __always_inline bool flow_is_free(const struct flow_cell *cell, __u32 now)
{
	return !cell->owner || (__s32)(cell->expires - now) < 0;
}

/* A request for a cell. */
struct flow_claim {
	__u64 hash; /* of the flow: its set */
	__u64 tag;
	__u32 slot;
	__u32 vip; /* index of vip_usage */
	__u32 limit; /* on its trusted cells */
	__u32 idle;
	__u32 now;
	/* Set by flow_assess(): */
	__u32 kind; /* of cells that the below is about: FLOW_TRUSTED, or 0 */
	__u32 tenant; /* index of tenant_usage; 0: none */
	bool set_has_room; /* for one more */
	bool vip_has_room; /* below its limit */
	bool vip_has_less; /* than its guaranteed share */
	bool tenant_has_room;
	bool tenant_has_less;
	/* Set by flow_recall(): */
	bool trusted; /* the cell that it found is */
};

static __always_inline struct flow_usage *usage_of(__u32 owner)
{
	__u32 row = owner >> FLOW_OWNER_SHIFT;

	return bpf_map_lookup_elem(&vip_usage, &row);
}

/* The tenant's, of a row that may be 0: NULL. */
static __always_inline struct flow_usage *tenant_usage_of(__u32 tenant)
{
	return tenant ? bpf_map_lookup_elem(&tenant_usage, &tenant) : NULL;
}

/* Adds n cells to the usage of the owner's VIP and of its tenant. */
__noinline int usage_add(__u32 owner, __u64 n)
{
	struct flow_usage *usage = owner ? usage_of(owner) : NULL;
	struct flow_usage *tenant = usage ? tenant_usage_of(usage->tenant) : NULL;

	if (usage)
		__sync_fetch_and_add(&usage->cells[owner & FLOW_TRUSTED], n);
	if (tenant)
		__sync_fetch_and_add(&tenant->cells[owner & FLOW_TRUSTED], n);
	return 0;
}

/*
 * Converts a bound on trusted cells into one for cells of a kind: half as many for untrusted flows,
 * most of which never come again.
 */
static __always_inline __u64 flow_rows_of_kind(__u32 cells, __u32 kind)
{
	return kind ? cells : cells / 2 ?: 1;
}

/*
 * How long a flow is remembered. A sixteenth more than it must be, so that not every packet has
 * to write.
 */
static __always_inline __u32 flow_ttl(__u32 idle, bool trusted)
{
	if (!trusted && idle > cfg_flow_untrusted_ticks)
		idle = cfg_flow_untrusted_ticks;
	return idle + idle / 16 + 1;
}

/* 1 or 0, as !flow_is_free(); without a branch, of which eight in a row were 256 ways to verify. */
static __always_inline __u32 flow_lives(const struct flow_cell *cell, __u32 now)
{
	__u32 owned = (cell->owner | -cell->owner) >> 31, left = ~(cell->expires - now) >> 31;

	barrier_var(owned);
	barrier_var(left);
	return owned & left;
}

/*
 * Functions that write or choose are global, so that the verifier walks each once, not once for
 * each way to it. The kernel wants them to return a number: 0 where there is nothing to tell.
 */

/* Looks up what the claim's VIP and tenant have, and the set, of cells of a kind. */
__noinline int flow_assess(const struct flow_set *set, struct flow_claim *c, __u32 kind)
{
	struct flow_usage *usage = c ? usage_of(c->vip << FLOW_OWNER_SHIFT) : NULL;
	struct flow_usage *tenant;
	__u32 cells = 0;

	if (!set || !usage)
		return false;
	kind &= FLOW_TRUSTED;
	for (int i = 0; i < FLOW_CELLS; i++)
		cells += flow_lives(&set->cells[i], c->now) & ~(set->cells[i].owner ^ kind);
	c->kind = kind;
	c->tenant = usage->tenant;
	tenant = tenant_usage_of(c->tenant);
	c->set_has_room = cells < (kind ? FLOW_TRUSTED_CELLS : FLOW_UNTRUSTED_CELLS);
	c->vip_has_room = usage->cells[kind] < flow_rows_of_kind(c->limit, kind);
	c->vip_has_less = usage->cells[kind] < flow_rows_of_kind(usage->guaranteed, kind);
	c->tenant_has_room =
		!tenant || tenant->cells[kind] < flow_rows_of_kind(tenant->limit, kind);
	c->tenant_has_less =
		tenant ? tenant->cells[kind] < flow_rows_of_kind(tenant->guaranteed, kind)
		       : c->vip_has_less;
	return true;
}

static __always_inline bool flow_has_room(const struct flow_claim *c)
{
	return c->set_has_room && c->vip_has_room && c->tenant_has_room;
}

/*
 * May a cell of this VIP and kind be evicted for the claim? If the VIP and its tenant have more of
 * the kind than their guaranteed shares, and the claim's tenant has less of its kind. Within a
 * tenant, which has as many cells as before, the VIPs' shares alone decide. A VIP of no tenant
 * counts as one.
 */
static __always_inline bool flow_is_evictable(const struct flow_usage *theirs, __u32 kind,
					      const struct flow_claim *c)
{
	struct flow_usage *tenant;

	if (!c->vip_has_room || theirs->cells[kind] <= flow_rows_of_kind(theirs->guaranteed, kind))
		return false;
	tenant = tenant_usage_of(theirs->tenant);
	if (tenant && theirs->tenant == c->tenant && kind == c->kind)
		return c->vip_has_less;
	if (tenant && tenant->cells[kind] <= flow_rows_of_kind(tenant->guaranteed, kind))
		return false;
	return c->tenant_has_less;
}

/* The order in which cells are evicted for a claim: the highest rank first. */
enum flow_evict_rank {
	FLOW_EVICT_NEVER,
	FLOW_EVICT_TRUSTED, /* borrowed, and the claim's would be untrusted */
	FLOW_EVICT_OWN, /* untrusted, of our VIP */
	FLOW_EVICT_BORROWED, /* of the claim's kind */
	FLOW_EVICT_FREE, /* and neither the set, our VIP nor its tenant has too many of the kind */
	FLOW_EVICT_SAME, /* the flow's own: what it was sent to is gone */
};

__noinline int flow_evict_rank(const struct flow_cell *cell, const struct flow_claim *c)
{
	struct flow_usage *theirs;
	__u32 owner, kind;

	if (!cell || !c)
		return FLOW_EVICT_NEVER;
	owner = cell->owner;
	kind = owner & FLOW_TRUSTED;
	if (flow_is_free(cell, c->now))
		return flow_has_room(c) ? FLOW_EVICT_FREE : FLOW_EVICT_NEVER;
	if (flow_matches(cell->flow, c->tag))
		return c->kind ? FLOW_EVICT_NEVER : FLOW_EVICT_SAME;
	if (kind != c->kind && (c->kind || !c->set_has_room))
		return FLOW_EVICT_NEVER;
	if (owner >> FLOW_OWNER_SHIFT == c->vip)
		return kind ? FLOW_EVICT_NEVER : FLOW_EVICT_OWN;
	theirs = usage_of(owner);
	if (!theirs || !flow_is_evictable(theirs, kind, c))
		return FLOW_EVICT_NEVER;
	return kind == c->kind ? FLOW_EVICT_BORROWED : FLOW_EVICT_TRUSTED;
}

enum {
	FLOW_SCORE_RANK_SHIFT = 35,
	FLOW_SCORE_AGE_SHIFT = 3, /* below it: the cell's index */
};

/* Ranks a cell among those of its set: the oldest of those of the best rank has the highest score.
 */
static __always_inline __u64 flow_score(const struct flow_set *set, __u32 i,
					const struct flow_claim *c)
{
	const struct flow_cell *cell = &set->cells[i];
	__u32 age = c->now - cell->expires + (1U << 31);
	__u64 rank = flow_evict_rank(cell, c);

	return rank << FLOW_SCORE_RANK_SHIFT | (__u64)age << FLOW_SCORE_AGE_SHIFT | i;
}

/* The higher one, without a branch. */
static __always_inline __u64 higher(__u64 a, __u64 b)
{
	__s64 less = (__s64)(a - b);

	barrier_var(less);
	return a - (less & less >> 63);
}

static __always_inline void flow_free(struct flow_cell *cell)
{
	usage_add(__sync_lock_test_and_set(&cell->owner, 0), -1);
}

/* May the claim's cell become trusted? A borrowed cell is evicted if it takes that. */
__noinline int flow_may_trust(struct flow_set *set, struct flow_claim *c)
{
	__u64 best = 0;

	if (!set || !c || !flow_assess(set, c, FLOW_TRUSTED))
		return false;
	if (flow_has_room(c))
		return true;
	if (!c->vip_has_less && !c->tenant_has_less)
		return false;
	for (int i = 0; i < FLOW_CELLS; i++)
		best = higher(best, flow_score(set, i, c));
	if (best >> FLOW_SCORE_RANK_SHIFT != FLOW_EVICT_BORROWED)
		return false;
	flow_free(&set->cells[best % FLOW_CELLS]);
	return true;
}

/* A packet of a remembered flow came: its cell lasts longer, and is trusted if there is room. */
__noinline int flow_touch(struct flow_set *set, __u32 i, struct flow_claim *c)
{
	struct flow_cell *cell;
	__u32 seen, want;

	if (!set || !c || i >= FLOW_CELLS || trace_only())
		return 0;
	cell = &set->cells[i];
	seen = cell->owner;
	want = c->vip << FLOW_OWNER_SHIFT | FLOW_TRUSTED;
	if (!seen)
		return 0;
	if (!(seen & FLOW_TRUSTED) && flow_may_trust(set, c) &&
	    __sync_val_compare_and_swap(&cell->owner, seen, want) == seen) {
		usage_add(seen, -1);
		usage_add(want, 1);
		seen = want;
	}
	cell->expires = c->now + flow_ttl(c->idle, seen & FLOW_TRUSTED);
	return 0;
}

/*
 * The slot that the flow was sent to, or 0. A cell that expired keeps its tag, and a flow that
 * comes back may have taken another one: a free cell ends no search.
 */
static __always_inline __u32 flow_recall(struct flow_claim *c)
{
	struct flow_set *set = flow_set_of(c->hash);

	if (!set)
		return 0;
#pragma unroll
	for (int i = 0; i < FLOW_CELLS; i++) {
		struct flow_cell *cell = &set->cells[i];
		__u64 flow = *(volatile __u64 *)&cell->flow;

		if (!flow_matches(flow, c->tag) || flow_is_free(cell, c->now))
			continue;
		if (!(cell->owner & FLOW_TRUSTED) || (__s32)(c->now + c->idle - cell->expires) > 0)
			flow_touch(set, i, c);
		c->trusted = cell->owner & FLOW_TRUSTED;
		return flow & SLOT_MASK;
	}
	return 0;
}

/* The same, and nothing is written. */
__noinline int flow_peek(__u64 hash, __u64 tag, __u32 now)
{
	struct flow_set *set = flow_set_of(hash);

	if (!set)
		return 0;
	for (int i = 0; i < FLOW_CELLS; i++) {
		struct flow_cell *cell = &set->cells[i];

		if (flow_matches(cell->flow, tag) && !flow_is_free(cell, now))
			return cell->flow & SLOT_MASK;
	}
	return 0;
}

static __always_inline void flow_take(struct flow_cell *cell, const struct flow_claim *c)
{
	__u32 want = c->vip << FLOW_OWNER_SHIFT;

	usage_add(__sync_lock_test_and_set(&cell->owner, want), -1);
	usage_add(want, 1);
	cell->expires = c->now + flow_ttl(c->idle, false);
	cell->flow = c->tag | c->slot;
}

/* Remembers the claim's slot. Returns whether there was room. */
__noinline int flow_remember(struct flow_claim *c)
{
	struct flow_set *set = c ? flow_set_of(c->hash) : NULL;
	struct flow_cell *cell;
	__u64 best = 0;
	__u32 rank;

	if (!set || !flow_assess(set, c, 0))
		return 0;
	for (int i = 0; i < FLOW_CELLS; i++)
		best = higher(best, flow_score(set, i, c));
	rank = best >> FLOW_SCORE_RANK_SHIFT;
	cell = &set->cells[best % FLOW_CELLS];
	if (rank == FLOW_EVICT_SAME)
		cell->flow = c->tag | c->slot;
	else if (rank != FLOW_EVICT_NEVER)
		flow_take(cell, c);
	return rank != FLOW_EVICT_NEVER;
}
