/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The agent's maps. User space writes all but sessions and verdicts; sizes are set at load. */
#pragma once

#include "kernel.h"

#include <bpf/bpf_helpers.h>

#include "abi/shared/address.h"
#include "abi/agent/settings.h"
#include "abi/agent/verdict.h"
#include "abi/shared/counter.h"
#include "abi/shared/datagram.h"
#include "abi/shared/flowhash.h"
#include "abi/agent/nat_rule.h"
#include "abi/agent/chain_peer.h"
#include "abi/agent/session.h"

/*
 * Of a function that is not static: the verifier looks at it by itself, once, and trusts
 * that the argument is there. Without that it would walk the same code from each caller anew.
 */
#define __arg_nonnull __attribute__((btf_decl_tag("arg:nonnull")))

/* Where encapsulated packets may come from: addresses and prefixes. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, __u8);
} muxes SEC(".maps");

/* Backends of a rule's endpoint that may hand connections to it, or back to it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct chain_peer);
	__type(value, __u8);
} chain_peers SEC(".maps");

/* Outer destinations that nat_rules names: what is ours to decapsulate. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, __u8);
} tunnels SEC(".maps");

/* What VIP and port behind which tunnel address become. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct nat_rule_key);
	__type(value, struct nat_rule);
} nat_rules SEC(".maps");

/* DIP to the ifindex of the workload's host-side interface; 0: native, on the host itself. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, __u32);
} workloads SEC(".maps");

/* Interfaces that workloads are behind: from_workload runs there. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u8);
} workload_links SEC(".maps");

/*
 * Live connections that both ends have spoken in. The programs write and read; user space deletes
 * what has been idle for too long. Full: the least recently used one is evicted.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 262144);
	__type(key, struct session_key);
	__type(value, struct session);
} sessions SEC(".maps");

/*
 * The others: connections that a client alone, or one with a forged source, may have made. A flood
 * of them evicts only its like.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct session_key);
	__type(value, struct session);
} new_sessions SEC(".maps");

enum { REPLY_FRAGMENT_SETS = 4096 }; /* a power of two */

/*
 * Datagrams that workloads send in fragments: see agent/fragment.h. Full: one of the set is
 * forgotten, see datagram.h.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, REPLY_FRAGMENT_SETS);
	__uint(map_flags, BPF_F_MMAPABLE); /* it aligns sets to lines */
	__type(key, __u32);
	__type(value, struct datagram_set);
} reply_fragments SEC(".maps");

/* Secret key of the hash of datagrams, so that no sender can aim at a set. User space draws it. */
struct flowhash_key hash_key SEC(".data.hash_key");

/* Settings, written by user space; a map of one row that needs no lookup. */
struct agent_settings settings SEC(".data.settings");

/* Packets and bytes by verdict; the programs write, user space reads. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, VERDICT_COUNT);
	__type(key, enum verdict);
	__type(value, struct counter);
} verdicts SEC(".maps");
