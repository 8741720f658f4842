/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Quotas of sessions by VIP: each has a guaranteed share of each table, and borrows from a part
 * that is for all. Beyond that its new sessions evict others that are beyond quotas, and a session
 * that would be confirmed stays with the new ones. Checked when a session is made or confirmed.
 *
 * The rule is that of snat/quota.h, but not the code. Sessions are in LRU tables, which evict
 * unseen by the programs: only what is made can be counted, until user space counts anew. Rows of
 * source NAT are removed by the programs, so their counts go down too. What both would share is one
 * comparison.
 */
#pragma once

#include "abi/agent/session_quota.h"
#include "agent/maps.h"

/* By VIP. User space makes and removes the rows. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16385);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, struct session_usage);
} session_usages SEC(".maps");

/* Quotas, by VIP. User space alone writes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16385);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, struct session_quota);
} session_quotas SEC(".maps");

/*
 * The new sessions beyond quotas, in the order in which they were made: the next one takes the
 * place of the oldest, which goes.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct session_key);
} overflow_keys SEC(".maps");

/* Counts a session that is about to be made as borrowed, if there is room to borrow. */
static __always_inline bool quota_borrow(enum session_table table)
{
	const struct address all = {};
	struct session_usage *usage = bpf_map_lookup_elem(&session_usages, &all);
	const struct session_quota *quota = bpf_map_lookup_elem(&session_quotas, &all);

	if (!usage || !quota || usage->made[table] >= quota->guaranteed[table])
		return false;
	__sync_fetch_and_add(&usage->made[table], 1);
	return true;
}

static __always_inline bool quota_count(const struct address *vip, enum session_table table)
{
	struct session_usage *usage = bpf_map_lookup_elem(&session_usages, vip);
	const struct session_quota *quota = bpf_map_lookup_elem(&session_quotas, vip);
	__u64 made;

	if (!usage || !quota) /* of no rule that is left */
		return true;
	made = usage->made[table];
	if (made >= quota->guaranteed[table] &&
	    (made >= quota->limit[table] || !quota_borrow(table))) {
		__sync_fetch_and_add(&usage->refused[table], 1);
		return false;
	}
	__sync_fetch_and_add(&usage->made[table], 1);
	return true;
}

/*
 * May the VIP have one more confirmed session? Then it is counted. As the other not static, so that
 * the verifier looks at it once.
 */
__noinline int quota_confirm(const struct address *vip __arg_nonnull)
{
	return quota_count(vip, SESSIONS_CONFIRMED);
}

/*
 * Ends what was made beyond quotas at this place. The same connection may have begun anew since,
 * within quotas or at another place: such a row stays.
 */
static __always_inline void quota_end(const struct session_key *key, __u32 place)
{
	const struct session *session = bpf_map_lookup_elem(&new_sessions, key);

	if (session && session->overflow == place)
		bpf_map_delete_elem(&new_sessions, key);
}

/*
 * Counts a new session that is about to be made. One beyond the VIP's quota takes the place of
 * another such, which is returned for its row; 0: it is within.
 */
__noinline int quota_new(const struct session_key *key __arg_nonnull,
			 const struct address *vip __arg_nonnull)
{
	const struct address all = {};
	const struct session_quota *quota;
	struct session_usage *usage;
	struct session_key *oldest;
	__u32 index;

	if (quota_count(vip, SESSIONS_NEW))
		return 0;
	usage = bpf_map_lookup_elem(&session_usages, &all);
	quota = bpf_map_lookup_elem(&session_quotas, &all);
	if (!usage || !quota || !quota->limit[SESSIONS_NEW])
		return 0;
	index = __sync_fetch_and_add(&usage->refused[SESSIONS_NEW], 1) % quota->limit[SESSIONS_NEW];
	oldest = bpf_map_lookup_elem(&overflow_keys, &index);
	if (!oldest)
		return 0;
	quota_end(oldest, index + 1);
	*oldest = *key;
	return index + 1;
}
