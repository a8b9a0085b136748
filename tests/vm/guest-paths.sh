#!/bin/bash
#
# guest-paths.sh PROGRAMS - build paths between the namespaces a and b of a guest.
#
# Each has veth pairs (or NICs) of its own; path N has the addresses 10.N.0.1 at a
# and 10.N.0.2 at b where messages shall go, and 172.16.N.* on what is below.
# PROGRAMS is the folder with tun_vpn.

set -eu

programs=$1
work=$(mktemp -d)

ends=(- a b)

# both WORDS: `ip` in each namespace; %i is its own number, %o the other's. A program
# takes long to start in a guest: all is done by `link_up`, for a first.
both() {
	local i words
	for i in 1 2; do
		words=("${@//%i/$i}")
		echo "${words[@]//%o/$((3 - i))}" >>"$work/$i"
	done
}

at_a() {
	echo "$@" >>"$work/1"
}

link_up() {
	local i
	for i in 1 2; do
		ip -n "${ends[i]}" -batch "$work/$i"
	done
}

pair() { # NAME
	at_a link add "$1" type veth peer name "$1" netns b
	both link set "$1" up
}

address() { # DEVICE PREFIX
	both addr add "$2.%i/24" dev "$1"
	both link set "$1" up
}

# below N: a veth pair nN with addresses for a tunnel's packets
below() {
	pair "n$1"
	address "n$1" "172.16.$1"
}

make_vlan() {
	pair "n$1"
	both link add "d$1" link "n$1" type vlan id 10
	address "d$1" "10.$1.0"
}

make_bond() {
	at_a link add "n$1" type veth peer name "n$1" netns b
	at_a link add "m$1" type veth peer name "m$1" netns b
	both link add "d$1" type bond mode active-backup miimon 100
	both link set "n$1" master "d$1"
	both link set "m$1" master "d$1"
	address "d$1" "10.$1.0"
}

make_macvlan() {
	pair "n$1"
	both link add "d$1" link "n$1" type macvlan mode bridge
	address "d$1" "10.$1.0"
}

make_ipvlan() {
	pair "n$1"
	both link add "d$1" link "n$1" type ipvlan mode l2
	address "d$1" "10.$1.0"
}

make_bridge() {
	pair "n$1"
	both link add "d$1" type bridge forward_delay 0
	both link set "n$1" master "d$1"
	address "d$1" "10.$1.0"
}

make_tunnel() { # N gre|gretap|ipip
	below "$1"
	both link add "d$1" type "$2" local "172.16.$1.%i" remote "172.16.$1.%o"
	address "d$1" "10.$1.0"
}

make_geneve() {
	below "$1"
	both link add "d$1" type geneve id 5 remote "172.16.$1.%o"
	address "d$1" "10.$1.0"
}

make_vxlan() { # N DEVICE PREFIX: over a device that has addresses of the prefix
	both link add "d$1" type vxlan id "$1" dstport "$((4789 + $1))" \
		local "$3.%i" remote "$3.%o" dev "$2"
	address "d$1" "10.$1.0"
}

make_wireguard() {
	below "$1"
	both link add "d$1" type wireguard
	address "d$1" "10.$1.0"
}

open_wireguard() {
	local i peer=(- - -)
	umask 077
	for i in 1 2; do
		wg genkey >"$work/key$i"
		peer[3 - i]=$(wg pubkey <"$work/key$i")
	done
	for i in 1 2; do
		ip netns exec "${ends[i]}" wg set "d$1" \
			listen-port 51820 private-key "$work/key$i" \
			peer "${peer[i]}" allowed-ips "10.$1.0.0/24" \
			endpoint "172.16.$1.$((3 - i)):51820"
	done
}

make_tun() {
	below "$1"
	both tuntap add dev "d$1" mode tun
	address "d$1" "10.$1.0"
}

open_tun() {
	local i
	for i in 1 2; do
		mkfifo "$work/tun$i"
		setsid "$programs/tun_vpn" "${ends[i]}" "d$1" "172.16.$1.$i" \
			"172.16.$1.$((3 - i))" 1194 >"$work/tun$i" </dev/null &
		read -r _ <"$work/tun$i"
	done
}

# VXLAN over a VLAN over a bond
make_stack() {
	at_a link add "n$1" type veth peer name "n$1" netns b
	at_a link add "m$1" type veth peer name "m$1" netns b
	both link add "b$1" type bond mode active-backup miimon 100
	both link set "n$1" master "b$1"
	both link set "m$1" master "b$1"
	both link set "b$1" up
	both link add "v$1" link "b$1" type vlan id 20
	address "v$1" "172.16.$1"
	make_vxlan "$1" "v$1" "172.16.$1"
}

# b is a container of the host h, in whose namespace its packets arrive
make_ipvlan_container() {
	ip netns add h
	at_a link add "d$1" type veth peer name "n$1" netns h
}

open_ipvlan_container() {
	local i
	ip -n h link set "n$1" up
	ip -n h link add "d$1" link "n$1" netns b type ipvlan mode l2
	for i in 1 2; do
		ip -n "${ends[i]}" addr add "10.$1.0.$i/24" dev "d$1"
		ip -n "${ends[i]}" link set "d$1" up
	done
}

has_netkit() {
	grep -qw netkit_xmit /proc/kallsyms
}

# netkit N END WORDS: one end of a pair in this namespace, the other at END. Its
# own options are newer than this `ip`, and not needed.
netkit() {
	echo "link add name d$1 ${*:3} type netkit"
	echo "link set nk0 netns $2 name d$1"
}

make_netkit() {
	netkit "$1" b >>"$work/1"
	address "d$1" "10.$1.0"
}

# b is a container of the host k, whose BPF hands packets into it
make_netkit_container() {
	ip netns add k
	at_a link add "d$1" type veth peer name "n$1" netns k
}

open_netkit_container() {
	local i
	netkit "$1" b index "$((1000 + $1))" >"$work/k"
	cat >>"$work/k" <<-END
		addr add 10.$1.0.254/24 dev n$1
		link set n$1 up
		link set d$1 up
		route add 10.$1.0.2/32 dev d$1
	END
	ip -n k -batch "$work/k"
	ip netns exec k sysctl -qw net.ipv4.ip_forward=1 "net.ipv4.conf.n$1.proxy_arp=1"
	ip netns exec k tc qdisc add dev "n$1" clsact
	ip netns exec k tc filter add dev "n$1" ingress protocol ip bpf da \
		obj "$programs/redirect.o" sec tc/peer
	for i in 1 2; do
		ip -n "${ends[i]}" addr add "10.$1.0.$i/24" dev "d$1"
		ip -n "${ends[i]}" link set "d$1" up
	done
}

# make_nics N PAIR: two that vmrun.sh has joined, one into each namespace
make_nics() {
	local i mac device
	for i in 1 2; do
		mac=$(printf '52:54:00:00:%02x:%02x' "$2" "$i")
		device=$(grep -l "$mac" /sys/class/net/*/address | cut -d/ -f5)
		ip link set "$device" netns "${ends[i]}" name "d$1"
	done
	address "d$1" "10.$1.0"
}

main() {
	local i
	modprobe -a virtio_net e1000
	for i in 1 2; do
		ip netns add "${ends[i]}"
		ip netns exec "${ends[i]}" sysctl -qw net.ipv6.conf.default.disable_ipv6=1
	done
	both link set lo up
	make_vlan 1
	make_bond 2
	make_macvlan 3
	make_ipvlan 4
	make_bridge 5
	make_tunnel 6 gre
	make_tunnel 7 gretap
	make_tunnel 8 ipip
	make_geneve 9
	below 10
	make_vxlan 10 n10 172.16.10
	make_wireguard 11
	make_tun 12
	make_stack 13
	make_nics 14 0
	make_nics 15 1
	make_ipvlan_container 16
	if has_netkit; then
		make_netkit 17
		make_netkit_container 18
	fi
	link_up
	if has_netkit; then
		open_netkit_container 18
	fi
	open_ipvlan_container 16
	open_wireguard 11
	open_tun 12
}

main
