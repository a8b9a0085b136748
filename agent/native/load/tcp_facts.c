/* tcp_facts.c - what TCP_INFO says of a connection. */
/* Not <netinet/tcp.h>: its struct tcp_info ends early. */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "tcp_facts.h"

enum { NS_PER_US = 1000 };

void tcp_facts_read(int fd, struct bulk_sent *ret)
{
	struct tcp_info info = { 0 };
	socklen_t length = sizeof(info);

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length))
		return;
	ret->totals.retransmits = info.tcpi_total_retrans;
	ret->totals.congestion_window = info.tcpi_snd_cwnd;
	ret->totals.srtt_ns = (uint64_t)info.tcpi_rtt * NS_PER_US;
	ret->totals.rttvar_ns = (uint64_t)info.tcpi_rttvar * NS_PER_US;
	ret->totals.min_rtt_ns = (uint64_t)info.tcpi_min_rtt * NS_PER_US;
	ret->totals.delivery_rate_bps = info.tcpi_delivery_rate * 8;
	ret->totals.busy_ns = info.tcpi_busy_time * NS_PER_US;
	ret->totals.receive_window_limited_ns =
		info.tcpi_rwnd_limited * NS_PER_US;
	ret->totals.send_buffer_limited_ns =
		info.tcpi_sndbuf_limited * NS_PER_US;
}

uint64_t tcp_moved_bytes(int fd)
{
	struct tcp_info info = { 0 };
	socklen_t length = sizeof(info);

	getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length);
	return info.tcpi_bytes_received + info.tcpi_bytes_acked;
}
