/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The mux's tables. User space writes them and sets their sizes at load; a packet writes only
 * the counters and the flow table.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "abi/shared/counter.h"
#include "abi/mux/backend.h"
#include "abi/mux/bucket.h"
#include "abi/mux/endpoint.h"
#include "abi/mux/flow.h"
#include "abi/mux/flow_filter.h"
#include "abi/mux/next_hop.h"
#include "abi/mux/settings.h"
#include "abi/mux/endpoint_index.h"
#include "abi/mux/snat.h"
#include "abi/mux/verdict.h"
#include "abi/shared/syncookie.h"

/*
 * (VIP, port, protocol) to the endpoint's row, and a row for each VIP. A row is replaced as a
 * whole. Never evicts.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct endpoint_key);
	__type(value, struct endpoint);
} endpoints SEC(".maps");

/* Ids of endpoints by the hash of their keys. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_MMAPABLE); /* to store a word at once */
	__type(key, __u32);
	__type(value, struct endpoint_index_row);
} endpoint_index SEC(".maps");

/* The rows of `endpoints` once more, by id. Row 0 is not used. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16385);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct endpoint_row);
} endpoint_rows SEC(".maps");

/*
 * Bucket tables, a slice for each endpoint. Of a slice that a row names only BUCKET_MOVED is ever
 * written: taken away.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 262144);
	__type(key, __u32);
	__type(value, struct bucket_row);
} buckets SEC(".maps");

/*
 * Backends, a slice for each endpoint, indexed by slot within it. Of a slice that a row names
 * only next_hop is ever written.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 262144);
	__type(key, __u32);
	__type(value, struct backend);
} backends SEC(".maps");

/* Owners of port ranges: a slice of SNAT_RANGES for each VIP with source NAT. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_MMAPABLE); /* to store a word at once */
	__type(key, __u32);
	__type(value, struct snat_row);
} snat_ranges SEC(".maps");

/*
 * The tunnels of workloads with ranges; row 0 is not used. Of a row that a range names only
 * next_hop is ever written.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16385);
	__type(key, __u32);
	__type(value, struct backend);
} snat_owners SEC(".maps");

/* Ethernet addresses on the way to the backends' hosts; row 0 is not used. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct next_hop);
} next_hops SEC(".maps");

/*
 * Which slot a flow was sent to: written by packets; user space frees what expired. Full means
 * that an untrusted flow of the same set is forgotten, or the new one not remembered; it then
 * goes where its bucket says.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_MMAPABLE); /* to free cells; and it aligns sets to lines */
	__type(key, __u32);
	__type(value, struct flow_set);
} flows SEC(".maps");

/* Bits of flows that `flows` has; a map of one row that needs no lookup. Written by packets. */
struct flow_filter flow_filter SEC(".data.flow_filter");

/*
 * By an endpoint's id: parts of its buckets of which a flow was found at another slot than its
 * bucket names. Packets set bits, user space clears them.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16385);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} flows_elsewhere SEC(".maps");

/* How much of `flows` each VIP has. Written by packets and by user space, only by addition. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16385);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct flow_usage);
} vip_usage SEC(".maps");

/* The same by tenant: row 0 is not used. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16385);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct flow_usage);
} tenant_usage SEC(".maps");

/* Packets by what became of them. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, VERDICT_COUNT);
	__type(key, enum verdict);
	__type(value, struct counter);
} verdicts SEC(".maps");

/* Packets forwarded for an endpoint, by its id. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 16385);
	__type(key, __u32);
	__type(value, struct counter);
} endpoint_counts SEC(".maps");

/* What all endpoints share; a map of one row that needs no lookup. */
struct mux_settings settings SEC(".data.settings");

/* Secrets of SYN cookies; a map of one row that needs no lookup. Written by user space. */
struct syn_secrets syn_secrets SEC(".data.syn");
