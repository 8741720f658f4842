/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which workloads answer SYNs with timestamps by ones with timestamps: then a cookie is certain. */
#pragma once

#include "abi/agent/steer.h"
#include "agent/maps.h"
#include "net/packet.h"

/*
 * Workloads that are proven to answer SYNs with timestamps. The programs write and read. Full: one
 * that is least recently asked of is forgotten, and its new connections go by their bucket.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct steer_workload);
	__type(value, __u32);
} steer_workloads SEC(".maps");

/* Notes it of a workload's answer to a SYN with timestamps. */
static __noinline int steer_learn(const struct packet *answer, bool timestamps)
{
	struct steer_workload key = { .dip = answer->source, .port = answer->source_port };
	bool known = bpf_map_lookup_elem(&steer_workloads, &key);
	__u32 value = 1;

	if (known == timestamps)
		return 0;
	if (timestamps)
		return bpf_map_update_elem(&steer_workloads, &key, &value, BPF_ANY);
	return bpf_map_delete_elem(&steer_workloads, &key);
}

static __always_inline bool steer_workload_speaks(const struct nat_rule *rule)
{
	struct steer_workload key = { .dip = rule->dip, .port = rule->port };

	return bpf_map_lookup_elem(&steer_workloads, &key);
}
