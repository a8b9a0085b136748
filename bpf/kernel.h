/*
 * kernel.h - the kernel types that we read, and of them only the fields that
 * we read. CO-RE finds the offsets in the running kernel's BTF.
 */
#ifndef LATPROF_KERNEL_H
#define LATPROF_KERNEL_H

#include <linux/bpf.h>
#include <linux/types.h>

typedef _Bool bool;
#define false 0
#define true 1
#define NULL ((void *)0)

#define SOCK_STREAM 1
#define SOCK_DGRAM 2
#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define TCP_ESTABLISHED 1
#define TCP_SYN_SENT 2
#define TCP_SYN_RECV 3
#define TCP_FIN_WAIT1 4
#define TCP_FIN_WAIT2 5
#define TCP_CLOSE 7
#define TCP_CLOSE_WAIT 8
#define TCP_LAST_ACK 9
#define TCP_LISTEN 10
#define TCP_CLOSING 11
#define RCV_SHUTDOWN 1
#define SHUTDOWN_MASK 3
#define TCP_CA_RECOVERY 3
#define TCP_CA_LOSS 4
#define ICSK_TIME_LOSS_PROBE 5
#define SOCK_NOSPACE 2 /* bit: somebody waits for room in the send buffer */
#define SK_PACING_NEEDED 1 /* by TCP itself */
#define TSQ_THROTTLED 0 /* bit */
#define TCP_NAGLE_CORK 2
#define SOCK_DEAD 0 /* bit: no process has it any more */
#define SOCK_DONE 1 /* bit: TCP has its peer's FIN */
#define IFF_LOOPBACK 8
#define LOOPBACK_IFINDEX 1 /* in every namespace */
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define TCP_FLAG_FIN 1
#define TCP_FLAG_SYN 2
#define TCP_FLAG_ACK 16
#define TC_H_ROOT 0xffffffff
#define MSG_PEEK 0x2
#define MSG_DONTWAIT 0x40
#define MSG_ERRQUEUE 0x2000
#define SCHED_IDLE 5
#define S_IFMT 00170000
#define S_IFSOCK 0140000

enum iter_type {
	ITER_UBUF,
	ITER_IOVEC,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), \
			     apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct net {
	struct ns_common ns;
	struct hlist_head *dev_index_head;
	__u64 net_cookie;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr {
	union {
		__u8 u6_addr8[16];
		__be32 u6_addr32[4];
	} in6_u;
};

struct dst_entry {
	struct net_device *dev;
};

struct sock_common {
	int skc_bound_dev_if;
	union {
		struct {
			__be32 skc_daddr;
			__be32 skc_rcv_saddr;
		};
	};
	union {
		struct {
			__be16 skc_dport;
			__u16 skc_num;
		};
	};
	unsigned short skc_family;
	volatile unsigned char skc_state;
	unsigned long skc_flags;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct kernfs_node {
	const char *name;
	__u64 id;
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup_subsys_state *parent;
	struct cgroup *cgroup;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	__u32 val;
} kuid_t;

typedef __s64 ktime_t;

struct hrtimer {
	ktime_t _softexpires;
};

struct sk_buff;
struct socket;

struct sk_buff_head {
	struct sk_buff *prev;
	__u32 qlen;
};

struct neigh_table {
	int family; /* of its addresses */
};

struct neighbour {
	struct neigh_table *tbl;
	struct sk_buff_head arp_queue; /* what waits until it is resolved */
	__u8 primary_key[0]; /* its address */
};

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_receive_queue;
	__u16 sk_type;
	__u16 sk_protocol;
	struct {
		atomic_t rmem_alloc;
	} sk_backlog;
	__u32 sk_max_ack_backlog;
	int sk_rcvlowat; /* below so many bytes nobody is woken */
	atomic_t sk_drops;
	unsigned char sk_shutdown;
	int sk_err;
	unsigned long sk_tsq_flags;
	__u32 sk_pacing_status;
	unsigned long sk_pacing_rate;
	struct dst_entry *sk_dst_cache;
	int sk_rx_dst_ifindex;
	struct socket *sk_socket;
	kuid_t sk_uid;
	struct sock_cgroup_data sk_cgrp_data;
};

struct request_sock {
	struct request_sock *dl_next;
	struct sock *sk;
};

struct request_sock_queue {
	struct request_sock *rskq_accept_head;
	struct request_sock *rskq_accept_tail;
};

struct inet_sock {
	__be16 inet_sport;
};

struct inet_sock___before_5_17 {
	int rx_dst_ifindex;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	struct request_sock_queue icsk_accept_queue;
	__u32 icsk_rto;
	__u8 icsk_ca_state : 5;
	__u8 icsk_pending;
};

struct tcp_options_received {
	__u16 sack_ok : 3;
};

struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 srtt_us; /* times 8 */
	struct minmax rtt_min; /* us */
	bool is_mptcp;
	struct tcp_options_received rx_opt;
	__u32 dsack_dups; /* segments that the peer had got twice */
	__u32 write_seq;
	__u32 snd_una; /* acknowledged up to here */
	__u32 snd_nxt;
	__u32 snd_sml; /* end of the last segment that was a small one */
	__u32 snd_wnd;
	__u32 snd_cwnd;
	__u32 snd_ssthresh;
	__u32 mss_cache;
	__u32 packets_out;
	__u32 sacked_out;
	__u32 lost_out;
	__u32 retrans_out;
	__u8 nonagle : 4;
	__u8 is_cwnd_limited : 1;
	__u64 tcp_clock_cache; /* when TCP looked at its clock last, in ns */
	__u64 tcp_wstamp_ns; /* when pacing lets the next segment go */
	struct hrtimer pacing_timer;
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u64 bytes_sent;
	__u64 bytes_retrans;
	__u64 bytes_received;
	__u64 bytes_acked;
};

struct udp_sock {
	struct sk_buff_head reader_queue;
	int forward_deficit;
};

struct iovec {
	void *iov_base;
	unsigned long iov_len;
};

struct iov_iter {
	__u8 iter_type; /* enum iter_type */
	unsigned long iov_offset;
	const struct iovec *__iov; /* one of the two */
	void *ubuf;
	unsigned long count;
	unsigned long nr_segs;
};

struct iov_iter___before_5_14 {
	unsigned int type; /* enum iter_type, and: */
};
#define ITER_DIRECTION 3U

struct iov_iter___before_6_4 {
	const struct iovec *iov;
};

struct msghdr {
	unsigned int msg_flags;
	struct iov_iter msg_iter;
};

struct Qdisc_ops {
	char id[16];
};

struct gnet_stats_queue {
	__u32 backlog; /* bytes */
};

struct Qdisc {
	void *enqueue;
	unsigned int flags;
	const struct Qdisc_ops *ops;
	__u32 handle;
	__u32 parent;
	struct gnet_stats_queue qstats;
	long privdata[1];
};

struct tbf_sched_data {
	struct Qdisc *qdisc;
};

struct netdev_queue {
	struct net_device *dev;
	struct Qdisc *qdisc;
};

struct rtnl_link_ops {
	const char *kind;
};

struct net_device {
	char name[16];
	int ifindex;
	unsigned int flags;
	struct hlist_node index_hlist;
	possible_net_t nd_net;
	struct netdev_queue *_tx;
	const struct rtnl_link_ops *rtnl_link_ops;
};

typedef struct {
	atomic_t refs;
} refcount_t;

struct sk_buff {
	struct sk_buff *prev;
	struct sock *sk;
	struct net_device *dev;
	char cb[48];
	unsigned int len;
	unsigned int data_len; /* of it in pages */
	int skb_iif; /* device that it came by */
	unsigned long _nfct; /* conntrack's, and bits of its own */
	__u8 tc_skip_classify : 1;
	__be16 protocol;
	__u16 queue_mapping;
	__u16 inner_transport_header;
	__u16 transport_header;
	__u16 network_header;
	unsigned int end;
	unsigned char *head;
	unsigned char *data;
	unsigned int truesize;
	refcount_t users;
};

struct nf_conn {
	unsigned long status;
};

struct skb_shared_info {
	unsigned short gso_size;
	unsigned short gso_segs;
};

struct tcp_skb_cb {
	__u32 seq;
	__u32 end_seq;
	union {
		struct {
			__u16 tcp_gso_segs;
		};
	};
	__u32 ack_seq;
};

/* for their numbers as types: all fields of headers are in the structs below */
struct tcphdr {
	__be32 seq;
};

struct iphdr {
	__u8 ttl;
};

struct ipv6hdr {
	__u8 hop_limit;
};

struct socket {
	unsigned long flags;
	struct sock *sk;
};

struct inode {
	unsigned short i_mode;
	unsigned long i_ino;
};

struct socket_alloc {
	struct inode vfs_inode;
};

struct file {
	struct inode *f_inode;
	void *private_data;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct seq_file {
	unsigned long count;
};

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct task_struct;

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct file *file;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

struct bpf_iter__udp {
	struct bpf_iter_meta *meta;
	struct udp_sock *udp_sk;
};

struct bpf_map;

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	struct sock *sk;
	void *value;
};

struct bpf_iter__bpf_map_elem {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	void *key;
	void *value;
};

/* arguments of a system call, and its number; -1: in none */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r10;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned short cs;
};
#define FIRST_ARGUMENT(regs) ((regs)->di)
#define SECOND_ARGUMENT(regs) ((regs)->si)
#define THIRD_ARGUMENT(regs) ((regs)->dx)
#define FOURTH_ARGUMENT(regs) ((regs)->r10)
#define INSTRUCTION(regs) ((regs)->ip)
#define SYSTEM_CALL(regs) ((regs)->orig_ax)
/* __USER32_CS, on Xen in another table */
#define IS_32_BIT(regs) (((regs)->cs & 0xff) == 0x23)
/* read, poll, select, accept, recvfrom, recvmsg, epoll_wait, pselect6, ppoll,
 * epoll_pwait, accept4, recvmmsg, epoll_pwait2 */
#define IS_WAIT_FOR_NEXT(call)                                               \
	((call) == 0 || (call) == 7 || (call) == 23 || (call) == 43 ||       \
	 (call) == 45 || (call) == 47 || (call) == 232 || (call) == 270 ||   \
	 (call) == 271 || (call) == 281 || (call) == 288 || (call) == 299 || \
	 (call) == 441)
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	__u64 regs[31];
	__u64 pc;
	unsigned long orig_x0;
	unsigned long pstate;
	int syscallno;
};
#define FIRST_ARGUMENT(regs) ((regs)->orig_x0)
#define SECOND_ARGUMENT(of) ((of)->regs[1])
#define THIRD_ARGUMENT(of) ((of)->regs[2])
#define FOURTH_ARGUMENT(of) ((of)->regs[3])
#define INSTRUCTION(regs) ((regs)->pc)
#define SYSTEM_CALL(regs) ((regs)->syscallno)
#define IS_32_BIT(regs) (((regs)->pstate & 0x10) != 0) /* PSR_MODE32_BIT */
/* the same */
#define IS_WAIT_FOR_NEXT(call)                                               \
	((call) == 22 || (call) == 63 || (call) == 72 || (call) == 73 ||     \
	 (call) == 202 || (call) == 207 || (call) == 212 || (call) == 242 || \
	 (call) == 243 || (call) == 441)
#else
#error "latprof knows the system call arguments of x86-64 and arm64 only"
#endif

struct sched_info {
	unsigned long pcount; /* how often it got a CPU ... */
	unsigned long long run_delay; /* ... and waited for one, ns */
	unsigned long long last_arrival; /* scheduler's clock */
	unsigned long long last_queued; /* 0: it does not wait */
};

struct list_head {
	struct list_head *next;
};

struct signal_struct {
	atomic_t live; /* threads that have not ended */
	struct list_head thread_head;
};

struct mm_struct {
	unsigned long start_stack;
};

struct cfs_bandwidth {
	ktime_t period;
	__u64 quota; /* ns; all ones: none */
	struct hrtimer period_timer; /* CLOCK_MONOTONIC */
	int nr_throttled;
};

struct task_group {
	struct cgroup_subsys_state css;
	struct task_group *parent;
	struct cfs_bandwidth cfs_bandwidth;
};

struct rt_rq {
	int rt_throttled;
};

struct sched_dl_entity;

struct rq {
	__u64 clock;
	__u64 clock_task; /* the same, less what interrupts and the host took */
	__u64 clock_pelt; /* as the scheduler's, but slower where its CPU is */
	struct rt_rq rt;
	struct sched_dl_entity *dl_server; /* that lets who has the CPU run */
};

struct cfs_rq {
	struct rq *rq;
	struct task_group *tg;
	__u64 throttled_clock_pelt; /* when it was throttled last */
	int throttle_count; /* now: it, and those above it */
};

struct sched_entity {
	__u64 exec_start; /* by clock_task: its run is counted until then */
	__u64 sum_exec_runtime;
	struct cfs_rq *cfs_rq; /* of its group */
};

struct task_struct {
	void *stack; /* its lowest address */
	unsigned int flags;
	int prio; /* below 100: real-time */
	unsigned int policy;
	struct sched_dl_entity *dl_server; /* that lets it run */
	struct sched_entity se;
	struct mm_struct *mm;
	int pid;
	int tgid;
	struct task_struct *group_leader;
	struct signal_struct *signal;
	struct list_head thread_node;
	char comm[16];
	struct files_struct *files;
	struct sched_info sched_info;
	unsigned long nvcsw; /* switches by itself: it slept */
};

#pragma clang attribute pop

/* On the wire: fixed by RFC 791, 768, 793, 8200. */
struct ipv4_header {
	__u8 version_ihl;
	__u8 tos;
	__be16 total_length;
	__be16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 protocol;
	__be16 checksum;
	__be32 source;
	__be32 destination;
};

struct ipv6_header {
	__be32 flow;
	__be16 payload_length;
	__u8 next_header;
	__u8 hop_limit;
	__u8 source[16];
	__u8 destination[16];
};

struct ipv6_fragment {
	__u8 next_header;
	__u8 reserved;
	__be16 offset_more;
	__be32 id;
};

struct udp_header {
	__be16 source;
	__be16 destination;
	__be16 length;
	__be16 checksum;
};

struct tcp_header {
	__be16 source;
	__be16 destination;
	__be32 sequence;
	__be32 acknowledge;
	__u8 offset; /* upper four bits, in words */
	__u8 flags;
};

#endif
