/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tables of steering. User space writes all but steer_reasons. */
#pragma once

#include "abi/agent/steer.h"
#include "agent/maps.h"

/* Outer sources of packets to VIPs that switches hold. The value is an enum steer_role. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct steer_source);
	__type(value, __u32);
} steer_sources SEC(".maps");

/* Endpoints of such VIPs, whether or not the host has a backend of them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct steer_key);
	__type(value, struct steer_endpoint);
} steer_endpoints SEC(".maps");

/* Their buckets: at most 2 million of all of them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
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

/* The pool's secret, by which buckets are chosen: the muxes' hash_key. */
struct flowhash_key pool_key SEC(".data.pool_key");

/* Packets that switches brought, by what decided. The programs write, user space reads. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, STEER_REASONS);
	__type(key, enum steer_reason);
	__type(value, struct counter);
} steer_reasons SEC(".maps");
