/* hosts.c - what the sessions of one host take together, and those of all. */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "hosts.h"

enum { PREFIX_BYTES = 8 };

/* For so long a bound may be kept twice over. */
static const uint64_t patience_ns = 10 * NS_PER_SECOND;

static uint64_t allowed_ns(const struct share_bounds *b, uint64_t elapsed_ns)
{
	return elapsed_ns / 100 * b->cpu_percent;
}

enum share_lack share_lack(const struct share *s, const struct share_bounds *b,
			   uint64_t memory_bytes)
{
	if (b->sessions && s->sessions >= b->sessions)
		return SHARE_LACKS_SESSIONS;
	if (b->memory_bytes && s->memory_bytes + memory_bytes > b->memory_bytes)
		return SHARE_LACKS_MEMORY;
	return s->owing ? SHARE_LACKS_CPU : SHARE_LACKS_NOTHING;
}

void share_take(struct share *s, uint64_t memory_bytes)
{
	s->sessions++;
	s->memory_bytes += memory_bytes;
}

void share_return(struct share *s, uint64_t memory_bytes)
{
	s->sessions--;
	s->memory_bytes -= memory_bytes;
}

uint64_t share_look(struct share *s, const struct share_bounds *b,
		    uint64_t elapsed_ns)
{
	uint64_t allowed = allowed_ns(b, elapsed_ns), used = s->cpu_ns;
	uint64_t debt = b->cpu_percent ? s->debt_ns + used : 0;

	s->cpu_ns = 0;
	s->looked_ns = used;
	s->debt_ns = debt > allowed ? debt - allowed : 0;
	if (s->debt_ns > allowed_ns(b, patience_ns))
		s->owing = true;
	else if (!s->debt_ns)
		s->owing = false;
	/* What keeps to the bound now pays its debt by and by. */
	return s->owing && used > allowed ? used - allowed : 0;
}

static struct in6_addr mapped(const struct sockaddr_in *v4)
{
	struct in6_addr ret = { .s6_addr = { [10] = 0xff, [11] = 0xff } };

	memcpy(ret.s6_addr + 12, &v4->sin_addr, sizeof(v4->sin_addr));
	return ret;
}

static void name_host(const struct sockaddr_in6 *peer, struct host *ret)
{
	const struct in6_addr *v6 = &peer->sin6_addr;

	*ret = (struct host){ 0 };
	if (peer->sin6_family == AF_INET) {
		ret->prefix = mapped((const struct sockaddr_in *)peer);
	} else if (IN6_IS_ADDR_V4MAPPED(v6) || IN6_IS_ADDR_LINKLOCAL(v6)) {
		ret->prefix = *v6;
		ret->scope = peer->sin6_scope_id;
	} else {
		memcpy(&ret->prefix, v6, PREFIX_BYTES);
	}
}

static bool is_same(const struct host *a, const struct host *b)
{
	return a->scope == b->scope &&
	       IN6_ARE_ADDR_EQUAL(&a->prefix, &b->prefix);
}

struct host *host_enter(struct host **hosts, const struct sockaddr_in6 *peer)
{
	struct host named, *h = *hosts;

	name_host(peer, &named);
	while (h && !is_same(h, &named))
		h = h->next;
	if (!h) {
		h = malloc(sizeof(*h));
		if (!h)
			return NULL;
		*h = named;
		h->next = *hosts;
		*hosts = h;
	}
	h->guests++;
	h->arriving++;
	return h;
}

void host_leave(struct host *h)
{
	h->guests--;
}

void hosts_forget(struct host **hosts)
{
	while (*hosts) {
		struct host *h = *hosts;

		if (h->guests || h->share.cpu_ns || h->share.debt_ns) {
			hosts = &h->next;
			continue;
		}
		*hosts = h->next;
		free(h);
	}
}
