/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finding a port of a workload that is free towards a target: block by block, 64 ports at a time,
 * from behind the one that was given last, so that a port rests for as long as there are others.
 */
#pragma once

#include "agent/snat/flow.h"

/* For so many ns a port should rest after a connection. One that did not is a reason to ask for
 * more. */
#define SNAT_REST (1ULL << 30)

enum {
	SNAT_STEPS = SNAT_BLOCKS + SNAT_WORDS + 8, /* each block is looked at once, or twice */
	SNAT_TRIES = 4, /* ports that are taken against the hint */
};

/* A search, and what it found. */
struct snat_search {
	struct session_key key;
	struct snat_used_key used; /* target, and the block at hand */
	struct snat_port_key port_key; /* scratch: a row of snat_ports */
	struct snat_port port_row;
	struct address vip; /* result */
	__u32 start; /* block that the search began in, behind bit */
	__u32 bit;
	__u32 port; /* result */
	bool wrapped;
	bool found;
	bool hurried; /* the port has rested for less than SNAT_REST */
	bool full; /* there was no room for a row */
};

/* The search of the packet at hand: too much for the stack below all that comes before. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct snat_search);
} snat_searches SEC(".maps");

static __always_inline struct snat_search *snat_search_for(const struct session_key *key)
{
	__u32 zero = 0;
	struct snat_search *s = bpf_map_lookup_elem(&snat_searches, &zero);

	if (!s) /* never */
		return NULL;
	s->key = *key;
	s->hurried = s->full = false;
	return s;
}

static __always_inline __u32 lowest_bit(__u64 bits)
{
	__u32 at = 0;

	if (!(bits & 0xffffffff)) {
		at += 32;
		bits >>= 32;
	}
	if (!(bits & 0xffff)) {
		at += 16;
		bits >>= 16;
	}
	if (!(bits & 0xff)) {
		at += 8;
		bits >>= 8;
	}
	if (!(bits & 0xf)) {
		at += 4;
		bits >>= 4;
	}
	if (!(bits & 0x3)) {
		at += 2;
		bits >>= 2;
	}
	return at + !(bits & 1);
}

/* The first block at or behind from that may have a free port; SNAT_BLOCKS: none. */
__noinline __u32 snat_block_from(const struct snat_workload *workload __arg_nonnull,
				 const struct snat_target *target __arg_nonnull, __u32 from)
{
	__u64 bits, keep = ~0ULL << (from % 64);
	__u32 first = from / 64;

	if (!workload || !target)
		return SNAT_BLOCKS;
	for (__u32 word = 0; word < SNAT_WORDS; word++) {
		if (word < first)
			continue;
		bits = workload->blocks[word] & ~target->full[word];
		if (word == first)
			bits &= keep;
		if (bits)
			return word * 64 + lowest_bit(bits);
	}
	return SNAT_BLOCKS;
}

/* The taken ports of s's block. */
static __always_inline __u64 *snat_used_of(struct snat_search *s)
{
	__u64 *used = bpf_map_lookup_elem(&snat_block_use, &s->used), none = 0;

	if (used)
		return used;
	if (snat_has_room(s->used.target.workload, SNAT_TABLE_BLOCK_USE) &&
	    !bpf_map_update_elem(&snat_block_use, &s->used, &none, BPF_NOEXIST))
		snat_count_rows(s->used.target.workload, SNAT_TABLE_BLOCK_USE, 1);
	used = bpf_map_lookup_elem(&snat_block_use, &s->used);
	if (!used) {
		snat_note_refused(s->used.target.workload, SNAT_TABLE_BLOCK_USE);
		s->full = true;
	}
	return used;
}

/* Takes a port of s's block; false: it has none behind the start. */
__noinline bool snat_take_bit(struct snat_search *s __arg_nonnull,
			      struct snat_target *target __arg_nonnull)
{
	struct snat_block_key owned_key = { .workload = s->used.target.workload,
					    .block = s->used.block };
	const struct snat_block *owned = bpf_map_lookup_elem(&snat_blocks, &owned_key);
	__u32 block = s->used.block, bit;
	__u64 *used = snat_used_of(s), free;

	if (!owned || !used || !target)
		return false;
	free = owned->ports & ~*used;
	if (!free)
		__sync_fetch_and_or(&target->full[block / 64 % SNAT_WORDS], 1ULL << (block % 64));
	if (block == s->start && !s->wrapped)
		free &= ~0ULL << (s->bit % 64);
	if (!free)
		return false;
	bit = lowest_bit(free);
	if (__sync_fetch_and_or(used, 1ULL << bit) & (1ULL << bit))
		return false; /* another CPU was faster: the next step comes here again */
	__sync_fetch_and_add(&target->live, 1);
	s->port = block * SNAT_BLOCK_PORTS + bit;
	target->cursor = s->port;
	s->found = true;
	return true;
}

/* One step of the search; 1 ends it. */
static long snat_step(__u32 step, struct snat_search **at)
{
	struct snat_search *s = *at;
	const struct snat_workload *workload = bpf_map_lookup_elem(&snat_workloads, &s->key.dip);
	struct snat_target *target = bpf_map_lookup_elem(&snat_dests, &s->used.target);
	__u32 block;

	if (!workload || !target)
		return 1;
	block = snat_block_from(workload, target, s->used.block);
	if (block >= SNAT_BLOCKS || (s->wrapped && block > s->start)) {
		if (s->wrapped)
			return 1;
		s->wrapped = true;
		s->used.block = 0;
		return 0;
	}
	s->used.block = block;
	if (snat_take_bit(s, target))
		return 1;
	s->used.block = block + 1;
	return 0;
}

/* A destination without connections: one row that is never written, too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct snat_target);
} snat_no_target SEC(".maps");

/*
 * A row for s's target, whose search begins where nobody can guess (RFC 6056). NULL: there is no
 * room.
 */
static __always_inline struct snat_target *snat_make_target(struct snat_search *s)
{
	__u32 workload = s->used.target.workload, zero = 0;
	const struct snat_target *none = bpf_map_lookup_elem(&snat_no_target, &zero);
	struct snat_target *target;
	bool made;

	made = none && snat_has_room(workload, SNAT_TABLE_DESTS) &&
	       !bpf_map_update_elem(&snat_dests, &s->used.target, none, BPF_NOEXIST);
	if (made)
		snat_count_rows(workload, SNAT_TABLE_DESTS, 1);
	target = bpf_map_lookup_elem(&snat_dests, &s->used.target);
	if (target && made)
		target->cursor = bpf_get_prandom_u32() & 0xffff;
	if (!target) {
		snat_note_refused(workload, SNAT_TABLE_DESTS);
		s->full = true;
	}
	return target;
}

/* The target of s, with what is known to be full of it as of the workload's ports. */
static __always_inline struct snat_target *snat_target_of(struct snat_search *s, __u32 epoch)
{
	struct snat_target *target = bpf_map_lookup_elem(&snat_dests, &s->used.target);

	if (!target)
		target = snat_make_target(s);
	if (target && target->epoch != epoch) {
		target->epoch = epoch;
		__builtin_memset(target->full, 0, sizeof(target->full));
	}
	return target;
}

/* Finds a port that the hints call free. */
__noinline bool snat_search(struct snat_search *s __arg_nonnull,
			    const struct snat_workload *workload __arg_nonnull)
{
	struct snat_target *target;
	__u32 from;

	if (!workload)
		return false;
	target = snat_target_of(s, workload->epoch);
	if (!target)
		return false;
	from = (target->cursor + 1) % (SNAT_BLOCKS * SNAT_BLOCK_PORTS);
	s->start = s->used.block = from / SNAT_BLOCK_PORTS;
	s->bit = from % SNAT_BLOCK_PORTS;
	s->wrapped = s->found = false;
	bpf_loop(SNAT_STEPS, snat_step, &s, 0);
	if (!s->found && target->live < workload->ports)
		target->epoch = 0; /* a hint was wrong: look at all blocks the next time */
	else if (s->found)
		target->used_at = bpf_ktime_get_ns();
	return s->found;
}

/* s->port_row for s's connection. */
static __always_inline void snat_fresh_port(struct snat_search *s)
{
	__builtin_memset(&s->port_row, 0, sizeof(s->port_row));
	s->port_row.dip = s->key.dip;
	s->port_row.last_seen = bpf_ktime_get_ns();
	s->port_row.workload = s->used.target.workload;
	s->port_row.dip_port = s->key.dip_port;
}

/*
 * Takes the five-tuple of s->port_key from a connection that is over: 1; 0: from a live one it
 * can't be taken; -1: there is no room for rows.
 */
__noinline int snat_take_over(struct snat_search *s __arg_nonnull)
{
	const struct snat_port *port = bpf_map_lookup_elem(&snat_ports, &s->port_key);
	const struct snat_flow *flow;
	struct session_key other;
	__u32 whose, owner;

	if (!port)
		return -1;
	other = snat_flow_key(&s->port_key, port);
	flow = bpf_map_lookup_elem(&snat_flows, &other);
	if (flow && !snat_is_over(flow->events, port->events))
		return 0;
	whose = port->workload;
	owner = flow ? flow->workload : 0;
	s->hurried = s->port_row.last_seen - port->last_seen < SNAT_REST;
	if (bpf_map_update_elem(&snat_ports, &s->port_key, &s->port_row, BPF_EXIST))
		return 0;
	if (whose != s->port_row.workload) {
		snat_count_rows(whose, SNAT_TABLE_PORTS, -1);
		snat_count_rows(s->port_row.workload, SNAT_TABLE_PORTS, 1);
	}
	/* The use of the port that the old one counted goes on as this one's. */
	if (flow && !bpf_map_delete_elem(&snat_flows, &other))
		snat_count_rows(owner, SNAT_TABLE_FLOWS, -1);
	return 1;
}

/*
 * Makes the five-tuple s's: as snat_take_over(). Of a live connection that has it the hint is
 * mended.
 */
__noinline int snat_claim(struct snat_search *s __arg_nonnull)
{
	__u32 workload = s->used.target.workload;

	snat_fresh_port(s);
	s->port_key = snat_port_key(&s->key, &s->vip, bpf_htons(s->port));
	if (!snat_has_room(workload, SNAT_TABLE_PORTS) ||
	    bpf_map_update_elem(&snat_ports, &s->port_key, &s->port_row, BPF_NOEXIST))
		return snat_take_over(s);
	snat_count_rows(workload, SNAT_TABLE_PORTS, 1);
	snat_count(workload, s->port, 1);
	return 1;
}

/*
 * Gives the flow of s->key a port of its workload: s->vip and s->port. False: there is none, or no
 * room for rows, and s->full.
 */
static __always_inline bool snat_take(struct snat_search *s)
{
	const struct snat_workload *workload = bpf_map_lookup_elem(&snat_workloads, &s->key.dip);
	int claimed = 0;

	if (!workload)
		return false;
	s->vip = workload->vip;
	s->used.target = snat_target_key(&s->key, workload->number);
	for (int i = 0; i < SNAT_TRIES; i++) {
		if (!snat_search(s, workload))
			return false;
		claimed = snat_claim(s);
		if (claimed > 0)
			return true;
		if (claimed < 0)
			break;
	}
	if (claimed < 0) {
		snat_give_back(&s->key, s->used.target.workload, s->port);
		snat_note_refused(s->used.target.workload, SNAT_TABLE_PORTS);
		s->full = true;
	}
	return false;
}

/* Releases the port that s took or borrowed: the flow was not made. */
static __always_inline void snat_release_port(struct snat_search *s, bool borrowed)
{
	snat_drop_port(&s->port_key, s->used.target.workload);
	if (!borrowed)
		snat_give_back(&s->key, s->used.target.workload, s->port);
	snat_count(s->used.target.workload, s->port, -1);
}
