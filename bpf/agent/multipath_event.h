/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Counters of Multipath TCP. */
#pragma once

#include "abi/agent/multipath_event.h"
#include "agent/maps.h"
#include "net/counter.h"

/* The programs write, user space reads. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MULTIPATH_EVENTS);
	__type(key, enum multipath_event);
	__type(value, struct counter);
} mptcp_events SEC(".maps");

/* Not static: the verifier looks at it once. */
__noinline int multipath_happened(struct __sk_buff *skb, enum multipath_event event)
{
	count(&mptcp_events, event, skb->len);
	return 0;
}
