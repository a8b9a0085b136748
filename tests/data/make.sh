#!/bin/bash
#
# make.sh - let the real tools write the files that the tests of their readers read.
#
#   tests/data/make.sh [HISTOGRAM_SOCKPERF]
#
# Wants Debian 12's irtt 0.9.0, sockperf 3.7 and iperf3 3.12, nft, and root or user
# namespaces. sockperf has --histogram since 3.8: HISTOGRAM_SOCKPERF is a newer one.
# All traffic stays on the loopback device of a network namespace of its own, where
# nft drops what is to be lost: packets that arrive, since a sender is told of others.
set -euo pipefail

DATA=$(dirname "$(realpath "$0")")
PING=(--mps 100 -t 1 -i 127.0.0.1)

lose() { # RULE...
	nft -f - <<END
table inet loss {
	chain arrive { type filter hook input priority 0; $(printf '%s;' "$@") }
}
END
}

lose_nothing() { nft delete table inet loss; }

irtt_files() {
	irtt server >/dev/null &
	until irtt client -n 127.0.0.1 >/dev/null 2>&1; do :; done
	lose 'udp dport 2112 numgen inc mod 5 == 3 drop' \
		'udp sport 2112 numgen inc mod 6 == 4 drop'
	# it waits for the reply that does not come
	irtt client -Q -i 10ms -d 120ms -l 172 --wait=200ms -o "$DATA/irtt.json" 127.0.0.1
	irtt client -Q -i 10ms -d 120ms -l 1400 --wait=200ms -o "$DATA/irtt.json.gz" 127.0.0.1
	lose_nothing
}

# NAME MODE...: the text that sockperf prints, and its full log.
sockperf_file() {
	local name=$1
	shift
	"${SOCKPERF:-sockperf}" "$@" "${PING[@]}" --full-log "$DATA/sockperf_$name.csv" \
		>"$DATA/sockperf_$name.txt" 2>&1
}

sockperf_files() {
	sockperf server -i 127.0.0.1 >/dev/null 2>&1 &
	sockperf server --tcp -i 127.0.0.1 -p 11112 >/dev/null 2>&1 &
	until ss -Hltun | grep -q :11111 && ss -Hltun | grep -q :11112; do :; done
	sockperf_file full_rtt ping-pong --full-rtt
	sockperf_file tcp ping-pong --tcp -p 11112 -m 200
	sockperf_file under_load under-load --reply-every 2
	# which writes an empty log
	sockperf throughput "${PING[@]}" >"$DATA/untimed/sockperf_throughput.txt" 2>&1
	seq -f '0.%03g, 64' 20 5 900 >"$WORK/playback"
	sockperf playback -i 127.0.0.1 --data-file "$WORK/playback" --reply-every 1 \
		--full-log "$DATA/sockperf_playback.csv" >"$DATA/sockperf_playback.txt" 2>&1
	if [ -n "${1:-}" ]; then
		SOCKPERF=$1 sockperf_file histogram ping-pong --histogram 10:5:80
		SOCKPERF=$1 sockperf_file histogram_rtt ping-pong --full-rtt --histogram 10:0:200
	fi
}

iperf3_file() { # NAME OPTION...
	local name=$1
	shift
	iperf3 -J -c 127.0.0.1 -t 1 -i 0.5 "$@" >"$DATA/iperf3_$name.json"
}

iperf3_files() {
	iperf3 -s >/dev/null &
	iperf3 -s -1 -J -p 5202 >"$DATA/iperf3_server.json" &
	iperf3 -s -1 -J -p 5203 >"$DATA/iperf3_server_sends.json" &
	for port in 5201 5202 5203; do
		until ss -Hltn | grep -q ":$port"; do :; done
	done
	iperf3 -c 127.0.0.1 -p 5202 -u -b 1M -l 1000 -t 1 >/dev/null
	iperf3 -c 127.0.0.1 -p 5203 -u -b 1M -l 1000 -t 1 -R >/dev/null
	iperf3_file tcp_reverse -R -b 10M
	iperf3_file tcp_bidir --bidir -b 10M
	iperf3_file tcp_4 -P 4 -b 10M
	# the test's first datagram, of 4 bytes, opens it
	lose 'meta l4proto udp meta length > 500 numgen inc mod 20 == 7 drop'
	local option=(-u -b 1M -l 1000)
	iperf3_file udp_lossy "${option[@]}"
	iperf3_file udp_reverse "${option[@]}" -R
	iperf3_file udp_bidir "${option[@]}" --bidir
	iperf3_file udp_4 "${option[@]}" -P 4
	lose_nothing
}

if [ -z "${WORK:-}" ]; then
	WORK=$(mktemp -d) exec unshare --map-root-user --net --pid --fork --kill-child \
		--mount-proc "$0" "$@"
fi
trap 'rm -r "$WORK"' EXIT
ip link set lo up
irtt_files
sockperf_files "$@"
iperf3_files
