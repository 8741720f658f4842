/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Datagrams whose first fragment came, in a table that is fair to owners (tenants): in a full set a
 * new datagram evicts the oldest one of the owner with the most cells. So one owner alone may have
 * all cells, and gives them back as others come.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "abi/shared/counter.h"
#include "abi/shared/datagram.h"
#include "net/counter.h"
#include "net/flowhash.h"
#include "net/packet.h"

/* Ticks for which a first fragment's entry is valid, 2 s: IP ids are reused. */
volatile const __u32 cfg_datagram_life = DATAGRAM_LIFE;

/* Datagrams that were forgotten before their time, by whose took their place. User space reads. */
enum datagram_loss {
	DATAGRAM_LOST_TO_OWN,
	DATAGRAM_LOST_TO_ANOTHER,
	DATAGRAM_LOSSES,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DATAGRAM_LOSSES);
	__type(key, __u32);
	__type(value, struct counter);
} lost_datagrams SEC(".maps");

struct datagram {
	__u64 hash;
	__u64 words[DATAGRAM_WORDS];
	__u32 owner; /* number of the VIP or tenant that the entry counts for; not 0 */
	__u32 pad;
};

/* The hash of what all fragments of the packet's datagram have in common. */
static __always_inline __u64 datagram_hash(const struct packet *p, const struct flowhash_key *key)
{
	struct packet common;

	common.source = p->source;
	common.destination = p->destination;
	common.protocol = p->protocol;
	common.source_port = p->fragment_id;
	common.destination_port = p->fragment_id >> 16;
	return flowhash(&common, key);
}

static __always_inline __u32 datagram_now(void)
{
	return bpf_ktime_get_coarse_ns() >> DATAGRAM_TICK_SHIFT;
}

/* Less for one that was seen earlier. Another CPU's may be later than our time. */
static __always_inline __u32 datagram_freshness(__u32 seen, __u32 now)
{
	return seen - now + cfg_datagram_life;
}

static __always_inline bool datagram_lives(__u32 seen, __u32 now)
{
	return datagram_freshness(seen, now) <= 2 * cfg_datagram_life;
}

/* Not static, as what else is here and no small thing: the verifier looks at it once. */

/* Fills d by its hash from the first fragment's cell, if there is one. */
__noinline int datagram_recall(const struct datagram_set *set, struct datagram *d)
{
	__u32 now = datagram_now();

	if (!set || !d)
		return false;
	for (int i = 0; i < DATAGRAM_CELLS; i++) {
		const volatile struct datagram_cell *cell = &set->cells[i];
		__u32 seen = cell->seen; /* first: an old cell may become new, not a new one old */
		__u64 a = cell->words[0], b = cell->words[1];

		if ((cell->check ^ a ^ b) != d->hash || !datagram_lives(seen, now))
			continue;
		d->words[0] = a;
		d->words[1] = b;
		return true;
	}
	return false;
}

/* 1 or 0, without a branch: sixty-four of them are many ways to verify. */
static __always_inline __u32 datagram_is_of(const struct datagram_cell *cell, __u32 owner)
{
	__u32 other = cell->owner ^ owner;

	barrier_var(other);
	return ~(other | -other) >> 31;
}

static __always_inline __u32 datagram_cells_of(const struct datagram_set *set, __u32 owner)
{
	__u32 n = 0;

#pragma clang loop unroll(disable)
	for (int i = 0; i < DATAGRAM_CELLS; i++)
		n += datagram_is_of(&set->cells[i], owner);
	return n;
}

enum {
	DATAGRAM_SCORE_CELLS_SHIFT = 36,
	DATAGRAM_SCORE_OWN_SHIFT = 35,
	DATAGRAM_SCORE_AGE_SHIFT = 3, /* below it: the cell's index */
};

/*
 * Which cell of a full set makes way for one of owner: the oldest of who has most, where owner
 * counts with what it asks for, and goes before others who have as many. It is counted as lost.
 */
__noinline int datagram_victim(const struct datagram_set *set, __u32 owner, __u32 now)
{
	enum datagram_loss loss;
	__u64 most = 0;

	if (!set)
		return 0;
#pragma clang loop unroll(disable) /* the stack has no room for what is spilled */
	for (__u32 i = 0; i < DATAGRAM_CELLS; i++) {
		const struct datagram_cell *cell = &set->cells[i];
		__u64 own = datagram_is_of(cell, owner);
		__u64 cells = datagram_cells_of(set, cell->owner) + own;
		__u32 age = ~datagram_freshness(cell->seen, now);
		__u64 score = cells << DATAGRAM_SCORE_CELLS_SHIFT |
			      own << DATAGRAM_SCORE_OWN_SHIFT |
			      (__u64)age << DATAGRAM_SCORE_AGE_SHIFT | i;

		if (score > most)
			most = score;
	}
	loss = most >> DATAGRAM_SCORE_OWN_SHIFT & 1 ? DATAGRAM_LOST_TO_OWN
						    : DATAGRAM_LOST_TO_ANOTHER;
	count(&lost_datagrams, loss, 0);
	return most % DATAGRAM_CELLS;
}

/* The index of the cell that the datagram has, else of a free one, else of one that makes way. */
static __always_inline __u32 datagram_place(const struct datagram_set *set,
					    const struct datagram *d, __u32 now)
{
	__u32 free = DATAGRAM_CELLS;

	for (__u32 i = 0; i < DATAGRAM_CELLS; i++) {
		const struct datagram_cell *cell = &set->cells[i];

		if ((cell->check ^ cell->words[0] ^ cell->words[1]) == d->hash && cell->owner)
			return i;
		if (!cell->owner || !datagram_lives(cell->seen, now))
			free = i;
	}
	return free < DATAGRAM_CELLS ? free : (__u32)datagram_victim(set, d->owner, now);
}

/* Remembers what a datagram's first fragment tells. */
__noinline int datagram_note(struct datagram_set *set, const struct datagram *d)
{
	__u32 now = datagram_now(), place;
	struct datagram_cell *cell;

	if (!set || !d)
		return 0;
	place = datagram_place(set, d, now);
	barrier_var(place);
	cell = &set->cells[place % DATAGRAM_CELLS];
	cell->owner = d->owner;
	cell->words[0] = d->words[0];
	cell->words[1] = d->words[1];
	cell->check = d->hash ^ d->words[0] ^ d->words[1];
	barrier();
	cell->seen = now; /* last, as it is read first */
	return 0;
}
