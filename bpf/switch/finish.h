/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The only place that turns a verdict into an action. */
#pragma once

#include "net/counter.h"
#include "switch/maps.h"

static __always_inline int finish(enum verdict verdict, __u64 bytes, __u32 port)
{
	count(&verdicts, verdict, bytes);

	switch (verdict) {
	case VERDICT_PASS_NOT_ROUTED:
	case VERDICT_PASS_MALFORMED:
	case VERDICT_PASS_NO_HOST:
	case VERDICT_PASS_TTL:
	case VERDICT_PASS_NO_ROUTE:
	case VERDICT_FORWARD_NEIGHBOR:
		return XDP_PASS;
	case VERDICT_FORWARD:
		return bpf_redirect(port, 0);
	case VERDICT_DROP_TOO_BIG:
	case VERDICT_DROP_NO_HEADROOM:
	case VERDICT_DROP_TIP:
	case VERDICT_DROP_TIP_SOURCE:
		return XDP_DROP;
	case VERDICT_NONE:
	case VERDICT_COUNT:
		break;
	}
	return XDP_ABORTED;
}
