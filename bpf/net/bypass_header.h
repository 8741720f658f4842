/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The bypass header as an option, whose MAC it has. */
#pragma once

#include "abi/shared/bypass_header.h"
#include "net/fbt.h"

/* The option that says the same in a network. */
static __always_inline void bypass_header_option(const struct bypass_header *h, __u32 vni,
						 struct fbt *o)
{
	o->kind = h->next;
	o->length = h->length;
	o->exid = bpf_htons(FBT_EXID);
	vni_write(o->vni, vni);
	o->bits = h->bits;
	o->host = h->host;
	o->mac = h->mac;
}

/* The header before what is of a protocol, under a key of the host that receives it. */
static __always_inline void bypass_header_write(struct bypass_header *h, __u8 next,
						const struct fbt_key *key,
						const struct fbt_segment *t,
						const struct fbt_content *says)
{
	struct fbt o;

	h->next = next;
	h->length = BYPASS_HEADER_WORDS;
	h->client_port = t->client_port;
	h->vip_port = t->vip_port;
	h->reserved = 0;
	h->bits = fbt_bits(key, says);
	h->host = says->host;
	h->mac = 0;
	bypass_header_option(h, says->vni, &o);
	h->mac = fbt_mac(key, &o, t);
}
