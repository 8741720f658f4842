/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A switch's tables (Duet, section 3.1). User space writes them; their sizes are the switch's
 * limits, and are set at load. A packet writes only counters.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "abi/shared/address.h"
#include "abi/shared/counter.h"
#include "abi/switch/vendor.h"
#include "abi/switch/host.h"
#include "abi/switch/tip_source.h"
#include "abi/switch/tunnel.h"
#include "abi/switch/verdict.h"
#include "abi/switch/way.h"

/* VIPs. A row is replaced as a whole, which replaces a group. Never evicts. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct address);
	__type(value, struct host);
} hosts SEC(".maps");

/* Rows of table tunnels, a slice for each group. A slice that a host names is never written. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} ecmp SEC(".maps");

/* Tunnels, which groups share. A row that a group names is never written. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 512);
	__type(key, __u32);
	__type(value, struct tunnel);
} tunnels SEC(".maps");

/* Ways to tunnels, by row of table tunnels. Written by packets, for as long as a jiffy. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 512);
	__type(key, __u32);
	__type(value, struct way);
} ways SEC(".maps");

/* The VIPs of TIPs, by the host's id. A row that a host names is never written. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct address);
} inners SEC(".maps");

/* Outer sources that TIPs take packets from. Rows of an id that a host names are never written. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct tip_source);
	__type(value, __u32); /* 1 */
} tip_sources SEC(".maps");

/* Packets to a VIP that went into tunnels, by the host's id. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct counter);
} host_counts SEC(".maps");

/* Packets by what became of them. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, VERDICT_COUNT);
	__type(key, enum verdict);
	__type(value, struct counter);
} verdicts SEC(".maps");

const volatile struct vendor vendor;
