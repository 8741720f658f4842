// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Finds and removes an FBT for a test. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "net/skb/fbt.h"

enum { NONE = 0, STRIPPED = 1, FAILED = 2, OTHER = 3 };

SEC("tcx/ingress")
int strip(struct __sk_buff *skb)
{
	struct fbt_head head = {};
	struct packet p = {};

	if (frame_parse(skb, &p) != PARSED_OK || frame_parse_transport(skb, &p) != PARSED_OK)
		return OTHER;
	if (!fbt_find(skb, p.l4, &head))
		return NONE;
	return fbt_strip(skb, &p, &head) ? FAILED : STRIPPED;
}

char _license[] SEC("license") = "Dual BSD/GPL";
