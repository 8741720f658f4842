/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tables of steering. User space writes all but steer_reasons. */
#pragma once

#include "abi/agent/steer.h"
#include "agent/maps.h"
#include "net/packet.h"

/* Outer sources of packets to VIPs that switches hold. The value is an enum steer_role. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct steer_source);
	__type(value, __u32);
} steer_sources SEC(".maps");

/* What the outer source is to any VIP that switches hold: an enum steer_role; 0: nothing. */
static __always_inline __u32 steer_role_of(const struct packet *outer)
{
	struct steer_source key = { .source = outer->source };
	const __u32 *role = settings.steered ? bpf_map_lookup_elem(&steer_sources, &key) : NULL;

	return role ? *role : 0;
}

/* Endpoints of such VIPs, whether or not the host has a backend of them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct steer_key);
	__type(value, struct steer_endpoint);
} steer_endpoints SEC(".maps");

/* Their buckets: at most 8 million of all of them. A row that would name no backend is not there.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct steer_bucket_key);
	__type(value, struct steer_bucket_row);
} steer_buckets SEC(".maps");

/* Their backends by slot. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct steer_backend_key);
	__type(value, struct steer_backend);
} steer_backends SEC(".maps");

/* By number of an endpoint with STEER_BY_HOST: among which of its backends the host chooses. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct steer_locals);
} steer_locals SEC(".maps");

/* Muxes by family, that fragments and some ICMP errors are relayed to. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STEER_RELAY_FAMILIES);
	__type(key, __u32);
	__type(value, struct steer_relays);
} steer_relays SEC(".maps");

/* The pool's secret, by which buckets are chosen: the muxes' hash_key. */
struct flowhash_key pool_key SEC(".data.pool_key");

/* Packets that switches brought, by what decided. The programs write, user space reads. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, STEER_REASONS);
	__type(key, enum steer_reason);
	__type(value, struct counter);
} steer_reasons SEC(".maps");
