/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The table of overlay sessions: sets of 16 rows, two of which a connection may be in, chosen by a
 * keyed hash. A row's number is the client's local address, so a row never moves. No locks: a CPU
 * claims a free row by its tag (pending), writes it, and looks for another row of the connection;
 * if there is one it gives way, else it makes its own live. Of two CPUs at least one sees the
 * other. Readers compare the tag again when they have read.
 *
 * A table that has grown has the rows of the smaller one at their numbers, and finds them by the
 * smaller one's mask until none is left.
 *
 * User space frees rows, by the rules of session_quarantine(). The programs take over rows that
 * could be freed only where both sets are full.
 *
 * Functions that are not static are verified once, each by itself.
 *
 * Who includes this defines before how many sets there are: see sets_mask().
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "abi/shared/session.h"
#include "net/packet.h"

#define __arg_nonnull __attribute__((btf_decl_tag("arg:nonnull")))

/* The programs and user space, which has it mapped, write. Full: a new connection is refused. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096); /* a power of two */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct overlay_set);
} session_sets SEC(".maps");

/* The number of sets, a power of two, less 1; and likewise before the table grew. */
__u32 sets_mask(void);
__u32 sets_old_mask(void);

/* A connection, and its hash. */
struct overlay_key {
	struct address client;
	__u32 attachment;
	__be16 client_port;
	__be16 vip_port;
	__u64 hash;
	__u32 udp; /* 1; 0: TCP */
	__u32 pad;
};

/* What session_put() comes to if it is no row's number. */
enum session_refusal {
	SESSION_FULL = -1,
	SESSION_GAVE_WAY = -2, /* another CPU makes the connection's row: the SYN comes again */
};

#define TAG_HASH_MASK (~0U << OVERLAY_HASH_SHIFT)
#define TAG_LIVE_MASK (TAG_HASH_MASK | OVERLAY_STATE_MASK)

static __always_inline __u32 overlay_now(void)
{
	return bpf_ktime_get_coarse_ns() >> OVERLAY_TICK_SHIFT;
}

/* The hash as tags have it; never 0, for a free row has that. */
static __always_inline __u32 tag_hash(__u64 hash)
{
	return ((__u32)(hash >> 32) & TAG_HASH_MASK) ?: 1U << OVERLAY_HASH_SHIFT;
}

/* The connection's sets in a table with that mask: 0 or 1. Their bits are none of the tag's. */
static __always_inline __u32 set_of(__u64 hash, __u32 mask, __u32 choice)
{
	return (choice ? hash >> 18 : hash) & mask & ((1 << (OVERLAY_ROW_BITS - 4)) - 1);
}

static __always_inline struct overlay_set *set_at(__u32 set)
{
	return bpf_map_lookup_elem(&session_sets, &set);
}

/* The row of a number; NULL: there is none. */
static __always_inline struct overlay_session *session_at(__u32 row)
{
	struct overlay_set *set = set_at(row >> OVERLAY_WAY_BITS);

	return set ? &set->rows[row & (OVERLAY_WAYS - 1)] : NULL;
}

static __always_inline __u32 session_tag(__u32 row)
{
	struct overlay_set *set = set_at(row >> OVERLAY_WAY_BITS);

	return set ? *(volatile __u32 *)&set->tags[row & (OVERLAY_WAYS - 1)] : 0;
}

static __always_inline bool tag_is_live(__u32 tag)
{
	return (tag & OVERLAY_STATE_MASK) == OVERLAY_LIVE;
}

static __always_inline bool session_is_of(const struct overlay_session *s,
					  const struct overlay_key *key)
{
	return s->client_port == key->client_port && s->vip_port == key->vip_port &&
	       !(s->events & OVERLAY_UDP) == !key->udp && s->attachment == key->attachment &&
	       address_equal(&s->client, &key->client);
}

static __always_inline bool session_is_closed(__u32 events)
{
	const __u32 fins = OVERLAY_CLIENT_FIN | OVERLAY_SERVER_FIN;

	return (events & fins) == fins;
}

/* Is the connection over? A SYN begins such a one anew. */
static __always_inline bool session_is_over(__u32 events)
{
	return events & OVERLAY_RESET || session_is_closed(events);
}

/* Ticks of silence after which the row may be another's; 0: not by itself. */
static __always_inline __u32 session_quarantine(__u32 events)
{
	if (events & OVERLAY_RESET)
		return OVERLAY_RESET_TICKS;
	if (session_is_closed(events))
		return OVERLAY_CLOSED_TICKS;
	return events & OVERLAY_CLIENT_ACK ? 0 : OVERLAY_HALF_OPEN_TICKS;
}

static __always_inline bool session_is_spent(const struct overlay_session *s, __u32 now)
{
	__u32 quarantine = session_quarantine(s->events);

	return quarantine && (__s32)(now - s->seen) > (__s32)quarantine;
}

/* A client's segment of another host is of the same client if its number is so
 * near. */
enum { OVERLAY_MOVE_WINDOW = 1 << 16 };

/* Notes events, and returns those that were noted before: to each CPU another set if both note one.
 */
static __always_inline __u32 session_note(struct overlay_session *s, __u32 set, __u32 clear)
{
	__u32 *word = (__u32 *)&s->client_mac[4]; /* events are its upper half */
	__u32 was = s->events;

	if (set & ~was)
		was = __sync_fetch_and_or(word, set << 16) >> 16;
	if (clear & s->events)
		__sync_fetch_and_and(word, ~(clear << 16));
	return was;
}

static __always_inline void session_seen(struct overlay_session *s)
{
	__u32 now = overlay_now();

	if (s->seen != now)
		s->seen = now;
}

/* Is a number, counted on from another one, at most so far ahead of it? */
static __always_inline bool number_follows(__u32 number, __u32 from)
{
	return number - from <= 1U << 30;
}

/*
 * The number of the row in a set whose tag is tag under mask and that is the connection's, but not
 * the one that is excepted; negative: there is none.
 */
__noinline int set_find(__u32 number, const struct overlay_key *key __arg_nonnull, __u32 tag,
			__u32 mask, __u32 except)
{
	const struct overlay_set *set = set_at(number);

	if (!set)
		return -1;
	for (int way = 0; way < OVERLAY_WAYS; way++) {
		if ((set->tags[way] ^ tag) & mask || !session_is_of(&set->rows[way], key))
			continue;
		if ((number << OVERLAY_WAY_BITS | way) != except)
			return number << OVERLAY_WAY_BITS | way;
	}
	return -1;
}

/* Likewise, in all sets that it may be in. */
__noinline int sets_find(const struct overlay_key *key __arg_nonnull, __u32 tag, __u32 mask,
			 __u32 except)
{
	__u32 now = sets_mask(), old = sets_old_mask();
	int row = set_find(set_of(key->hash, now, 0), key, tag, mask, except);

	if (row < 0)
		row = set_find(set_of(key->hash, now, 1), key, tag, mask, except);
	if (row >= 0 || now == old)
		return row;
	row = set_find(set_of(key->hash, old, 0), key, tag, mask, except);
	if (row < 0)
		row = set_find(set_of(key->hash, old, 1), key, tag, mask, except);
	return row;
}

/* The number of the connection's live row; negative: it has none. */
static __always_inline int session_find(const struct overlay_key *key)
{
	return sets_find(key, tag_hash(key->hash) | OVERLAY_LIVE, TAG_LIVE_MASK, ~0U);
}

/* The number of free rows in a set, and above eight bits the way of one: a different one by turn.
 */
__noinline int set_room(__u32 number, __u32 turn)
{
	const struct overlay_set *set = set_at(number);
	int free = 0, found = 0;

	if (!set)
		return 0;
	for (int i = 0; i < OVERLAY_WAYS; i++) {
		__u32 way = (i + turn) & (OVERLAY_WAYS - 1);

		if (set->tags[way])
			continue;
		found = way;
		free++;
	}
	return found << 8 | free;
}

/* The number of a row in a set whose connection has rested long enough; negative: there is none. */
__noinline int set_find_spent(__u32 number, __u32 now)
{
	const struct overlay_set *set = set_at(number);

	if (!set)
		return -1;
	for (int way = 0; way < OVERLAY_WAYS; way++)
		if (tag_is_live(set->tags[way]) && session_is_spent(&set->rows[way], now))
			return number << OVERLAY_WAY_BITS | way;
	return -1;
}

/*
 * The number of a row that a connection may have: a free one in the less full one of its sets, or
 * one that has rested in either. Negative: there is none.
 */
__noinline int sets_find_room(__u64 hash, __u32 now)
{
	__u32 first = set_of(hash, sets_mask(), 0), second = set_of(hash, sets_mask(), 1);
	int a = set_room(first, hash >> 32), b = set_room(second, hash >> 32), row;

	if ((a & 0xff) >= (b & 0xff) && a & 0xff)
		return first << OVERLAY_WAY_BITS | a >> 8;
	if (b & 0xff)
		return second << OVERLAY_WAY_BITS | b >> 8;
	row = set_find_spent(first, now);
	return row >= 0 ? row : set_find_spent(second, now);
}

/* The tag of a row that the connection of hash gets, once it is live. */
static __always_inline __u32 tag_next(__u32 was, __u64 hash)
{
	return tag_hash(hash) | ((was + OVERLAY_GENERATION) & OVERLAY_GENERATION_MASK) |
	       OVERLAY_LIVE;
}

/* Claims a row whose tag was read: 0, or the tag to publish when the row is written. */
static __always_inline __u32 row_claim(struct overlay_set *set, __u32 way, __u32 was, __u64 hash)
{
	__u32 tag = tag_next(was, hash);
	__u32 pending = (tag & ~OVERLAY_STATE_MASK) | OVERLAY_PENDING;

	way &= OVERLAY_WAYS - 1;
	return __sync_val_compare_and_swap(&set->tags[way], was, pending) == was ? tag : 0;
}

/* Publishes a tag. All that was written before is seen before it. */
static __always_inline void row_publish(struct overlay_set *set, __u32 way, __u32 tag)
{
	__sync_lock_test_and_set(&set->tags[way & (OVERLAY_WAYS - 1)], tag);
}

/*
 * Makes the row of a connection that has none: its number, or enum session_refusal. What was there
 * before, if the row was not free, is put into *past for the caller's counts: its attachment
 * is 0 otherwise.
 */
__noinline int session_put(const struct overlay_key *key __arg_nonnull,
			   const struct overlay_session *fresh __arg_nonnull,
			   struct overlay_session *past __arg_nonnull)
{
	int row = sets_find_room(key->hash, fresh->seen);
	__u32 way = row & (OVERLAY_WAYS - 1), was, tag;
	struct overlay_set *set;

	past->rule = past->attachment = 0;
	if (row < 0)
		return SESSION_FULL;
	set = set_at(row >> OVERLAY_WAY_BITS);
	if (!set)
		return SESSION_FULL;
	was = *(volatile __u32 *)&set->tags[way];
	if (was && (!tag_is_live(was) || !session_is_spent(&set->rows[way], fresh->seen)))
		return SESSION_GAVE_WAY;
	tag = row_claim(set, way, was, key->hash);
	if (!tag)
		return SESSION_GAVE_WAY;
	if (was)
		*past = set->rows[way];
	set->rows[way] = *fresh;
	/* A full barrier: each of two CPUs writes its row before it looks for the other's. */
	if (!__sync_fetch_and_add(&set->tags[way], 0))
		return SESSION_GAVE_WAY; /* never: it is ours */
	if (sets_find(key, tag_hash(key->hash), TAG_HASH_MASK, row) >= 0) {
		row_publish(set, way, 0);
		return SESSION_GAVE_WAY;
	}
	row_publish(set, way, tag);
	return row;
}

/*
 * Begins the connection of a row anew, which had that tag: its new tag, or 0 if another CPU or user
 * space was faster. What the row was is put into *past.
 */
__noinline __u32 session_renew(__u32 row, __u32 was, __u64 hash,
			       const struct overlay_session *fresh __arg_nonnull,
			       struct overlay_session *past __arg_nonnull)
{
	struct overlay_set *set = set_at(row >> OVERLAY_WAY_BITS);
	__u32 way = row & (OVERLAY_WAYS - 1), tag;

	if (!set || !tag_is_live(was))
		return 0;
	tag = row_claim(set, way, was, hash);
	if (!tag)
		return 0;
	*past = set->rows[way];
	set->rows[way] = *fresh;
	row_publish(set, way, tag);
	return tag;
}
