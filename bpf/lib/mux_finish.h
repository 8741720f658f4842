/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The only place that turns a verdict into an action. */
#pragma once

#include "lib/counter.h"
#include "lib/mux_tables.h"

static __always_inline enum xdp_action finish(enum verdict verdict, __u64 bytes)
{
	count(&verdicts, verdict, bytes);

	switch (verdict) {
	case VERDICT_PASS_MALFORMED:
	case VERDICT_PASS_NOT_IP:
	case VERDICT_PASS_FRAGMENT:
	case VERDICT_PASS_ICMP:
	case VERDICT_PASS_OTHER_PROTOCOL:
	case VERDICT_PASS_NOT_FOR_US:
		return XDP_PASS;
	case VERDICT_FORWARD_SYN:
	case VERDICT_FORWARD_COOKIE:
	case VERDICT_FORWARD_FLOW:
	case VERDICT_FORWARD_BUCKET:
	case VERDICT_FORWARD_REPLACED:
	case VERDICT_FORWARD_UNREMEMBERED:
	case VERDICT_FORWARD_CHAINED:
	case VERDICT_FORWARD_SNAT:
	case VERDICT_FORWARD_FRAGMENT:
	case VERDICT_FORWARD_ICMP:
	case VERDICT_RELAY_FRAGMENT:
	case VERDICT_REPLY_ECHO:
	case VERDICT_REPLY_TOO_BIG:
	case VERDICT_REPLY_SYN:
		return XDP_TX;
	case VERDICT_DROP_NO_BACKEND:
	case VERDICT_DROP_SOURCE:
	case VERDICT_DROP_NO_RANGE:
	case VERDICT_DROP_NO_SOURCE:
	case VERDICT_DROP_NO_NEXT_HOP:
	case VERDICT_DROP_TOO_BIG:
	case VERDICT_DROP_NO_HEADROOM:
	case VERDICT_PUNT_FRAGMENT:
	case VERDICT_PUNT_ICMP:
	case VERDICT_PUNT_SPLIT:
	case VERDICT_DROP_ECHO:
	case VERDICT_DROP_ECHO_LIMITED:
	case VERDICT_DROP_PUNT:
	case VERDICT_DROP_NOT_A_MUX:
	case VERDICT_DROP_RELAYED:
	case VERDICT_DROP_SYN:
		return XDP_DROP;
	case VERDICT_NONE:
	case VERDICT_COUNT:
		break;
	}
	return XDP_ABORTED;
}
