// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Makes and checks one SYN cookie for a test. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "net/syncookie.h"

struct call {
	struct syn_secret secret;
	struct syn_flow flow;
	__u64 made; /* when, in ns since 1970 */
	__u64 checked;
	__u32 mss, options, slot;
	__u32 flip; /* bits that are wrong when it comes back */
	__u32 cookie, tsval; /* these are answers */
	__s32 verdict;
	__u32 kept;
};

SEC("syscall")
int twin(struct call *c)
{
	struct syn_secret secret = c->secret;
	struct syn_flow flow = c->flow;

	c->cookie = syn_cookie_make(&secret, &flow, c->mss, c->options, c->made);
	c->tsval = syn_tsval(c->slot, c->options, c->made);
	c->kept = syn_options(c->tsval);
	c->verdict = syn_cookie_check(&secret, &flow, c->cookie ^ c->flip, c->options, c->checked);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
