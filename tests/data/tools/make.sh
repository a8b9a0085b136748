#!/bin/bash
#
# make.sh - let the tools write the files that the tests of their readers read.
#
#   TOOLS=DIR:DIR tests/data/tools/make.sh
#
# README.md beside it has the versions; TOOLS are folders of programs that the
# distribution has not (wrk2 as wrk2). Wants nft, nginx, redis, and root or user
# namespaces. All traffic stays on the loopback device of a network namespace of its
# own, where nft drops what is to be lost: packets that arrive.
set -euo pipefail
export LC_ALL=C PATH=${TOOLS:-}:$PATH:/usr/sbin
DATA=$(dirname "$(realpath "$0")")
URL=http://127.0.0.1:8080/index.html

lose() { # RULE...
	nft -f - <<END
table inet loss {
	chain arrive { type filter hook input priority 0; $(printf '%s;' "$@") }
}
END
}
lose_nothing() { nft delete table inet loss; }

until_open() { # PORT
	until ss -Hltn | grep -q ":$1 "; do :; done
}

ping_files() {
	ping -c 20 -i 0.01 127.0.0.1 >"$DATA/ping.txt"
	ping -D -6 -c 20 -i 0.01 ::1 >"$DATA/ping_D_6.txt"
	ping -f -c 100 127.0.0.1 >"$DATA/ping_flood.txt"
	lose 'icmp type echo-reply numgen inc mod 5 == 3 drop'
	ping -c 20 -i 0.01 -W 0.2 127.0.0.1 >"$DATA/ping_lost.txt" || true
	ping -O -c 20 -i 0.02 -W 0.2 127.0.0.1 >"$DATA/ping_O.txt" || true
	busybox ping -c 6 -W 1 127.0.0.1 >"$DATA/ping_busybox.txt" || true
	fping -c 10 -p 10 -t 9 127.0.0.1 127.0.0.2 >"$DATA/fping_lost.txt" 2>&1 || true
	lose_nothing
	fping -C 5 -p 10 -q 127.0.0.1 127.0.0.2 >"$DATA/fping_C.txt" 2>&1
	fping -c 10 -p 10 -q 127.0.0.1 127.0.0.2 >"$DATA/fping_q.txt" 2>&1
	fping -D -c 10 -p 10 127.0.0.1 >"$DATA/fping_D.txt" 2>&1 || true
	for form in json csv raw report; do
		mtr -n --"$form" -c 5 -i 0.1 127.0.0.1 >"$DATA/mtr.$form"
	done
}

iperf_files() {
	iperf3 -s >/dev/null &
	until_open 5201
	iperf3 -c 127.0.0.1 -t 1 -i 0.25 -b 10M >"$DATA/iperf3.txt"
	iperf3 -c 127.0.0.1 -t 1 -i 0.5 -u -b 1M -l 1000 >"$DATA/iperf3_udp.txt"
	iperf3 -c 127.0.0.1 -t 1 -i 0.5 -b 10M -P 2 >"$DATA/iperf3_2.txt"
	timeout -s INT 1.2 iperf3 -J -c 127.0.0.1 -t 9 -i 0.5 -b 10M >"$DATA/iperf3_interrupted.json" || true
	timeout -s INT 1.2 iperf3 -c 127.0.0.1 -t 9 -i 0.5 -b 10M >"$DATA/iperf3_interrupted.txt" || true
	kill %%
	iperf -s -e -i 0.5 --histograms=1m,100 >"$DATA/iperf2_server.txt" &
	iperf -s -u -e -i 0.5 --histograms=10u,1000 >"$DATA/iperf2_udp_server.txt" &
	until_open 5001
	iperf -c 127.0.0.1 -t 1 -i 0.5 -b 10M >"$DATA/iperf2.txt"
	iperf -c 127.0.0.1 -t 1 -i 0.5 -b 10M -e --trip-times >"$DATA/iperf2_e.txt"
	iperf -c 127.0.0.1 -t 1 -i 0.5 -b 10M -y C >"$DATA/iperf2.csv"
	iperf -c 127.0.0.1 -t 1 -i 0.5 -b 1M -u -e --trip-times >"$DATA/iperf2_udp.txt"
	iperf -c 127.0.0.1 -t 1 -i 0.5 -b 1M -u -y C >"$DATA/iperf2_udp.csv"
	kill %% %-
}

http_files() {
	mkdir -p "$WORK/www"
	head -c 12 /dev/zero | tr '\0' x >"$WORK/www/index.html"
	cat >"$WORK/nginx.conf" <<-END
		daemon off; pid $WORK/nginx.pid; error_log /dev/null; user root;
		events {}
		http { access_log off; client_body_temp_path $WORK; proxy_temp_path $WORK; fastcgi_temp_path $WORK;
		uwsgi_temp_path $WORK; scgi_temp_path $WORK; server { listen 127.0.0.1:8080; root $WORK/www; } }
	END
	nginx -c "$WORK/nginx.conf" &
	until_open 8080
	wrk -t 1 -c 2 -d 1 "$URL" >"$DATA/wrk.txt"
	wrk -t 1 -c 2 -d 1 --latency "$URL" >"$DATA/wrk_latency.txt"
	wrk -t 1 -c 2 -d 1 "${URL}x" >"$DATA/wrk_404.txt"
	# it calibrates for 10 s
	wrk2 -t 1 -c 2 -d 12 -R 200 --latency "$URL" >"$DATA/wrk2.txt"
	hey -n 200 -c 2 "$URL" >"$DATA/hey.txt"
	hey -n 50 -c 2 -o csv "$URL" >"$DATA/hey.csv"
	ab -q -n 200 -c 2 -g "$DATA/ab_g.tsv" "$URL" >"$DATA/ab.txt"
	echo "import http from 'k6/http'; export default () => { http.get('$URL'); }" >"$WORK/k6.js"
	K6_NO_USAGE_REPORT=true k6 run -q --no-color -i 8 --out "csv=$DATA/k6.csv" --out "json=$WORK/k6.json" \
		--summary-export "$DATA/k6_summary.json" "$WORK/k6.js" >"$DATA/k6.txt"
	cp "$WORK/k6.json" "$DATA/k6.json"
	echo "GET $URL" | vegeta attack -rate 100 -duration 0.5s >"$WORK/vegeta.bin"
	for form in json csv; do vegeta encode -to $form <"$WORK/vegeta.bin" >"$DATA/vegeta.$form"; done
	vegeta report -type text <"$WORK/vegeta.bin" >"$DATA/vegeta.txt"
	vegeta report -type json <"$WORK/vegeta.bin" >"$DATA/vegeta_report.json"
	vegeta report -type hdrplot <"$WORK/vegeta.bin" >"$DATA/vegeta_hdr.txt"
	if type oha >/dev/null 2>&1; then
		oha -n 200 -c 2 --no-tui "$URL" >"$DATA/oha.txt"
		oha -n 200 -c 2 --no-tui --json "$URL" >"$DATA/oha.json" ||
			oha -n 200 -c 2 --no-tui --output-format json "$URL" >"$DATA/oha.json"
	fi
	kill %%
}

store_files() {
	redis-server --port 6390 --save '' --dir "$WORK" >/dev/null &
	until_open 6390
	redis-benchmark -p 6390 -n 500 -c 2 -t get,set --csv >"$DATA/redis_benchmark.csv"
	redis-benchmark -p 6390 -n 500 -c 2 -t get >"$DATA/redis_benchmark.txt"
	memtier_benchmark -p 6390 -n 100 -c 2 -t 1 --hide-histogram --json-out-file "$DATA/memtier.json" >"$DATA/memtier.txt" 2>/dev/null
	memtier_benchmark -p 6390 -n 100 -c 2 -t 1 --hdr-file-prefix "$WORK/hdr" >/dev/null 2>&1
	cp "$WORK"/hdr*SET*.txt "$DATA/memtier_hdr_SET.txt" || ls "$WORK"
	cp "$WORK"/hdr*SET*.hgrm "$DATA/memtier_hdr_SET.hgrm" || true
	kill %%
}

net_files() {
	netserver -D -4 -p 12865 >/dev/null 2>&1 &
	until_open 12865
	netperf -4 -H 127.0.0.1 -t TCP_RR -l 1 >"$DATA/netperf.txt"
	local names=THROUGHPUT,MIN_LATENCY,MEAN_LATENCY,P50_LATENCY,P90_LATENCY,P99_LATENCY,MAX_LATENCY,STDDEV_LATENCY
	netperf -4 -H 127.0.0.1 -t TCP_RR -l 1 -- -o "$names" >"$DATA/netperf_o.txt"
	netperf -4 -H 127.0.0.1 -t TCP_RR -l 1 -- -k "$names" >"$DATA/netperf_k.txt"
	netperf -4 -H 127.0.0.1 -t UDP_RR -l 1 -j -v 2 >"$DATA/netperf_j.txt"
	(cd "$WORK" && flent ping -l 3 -s 0.1 -H 127.0.0.1 -D "$WORK" >/dev/null 2>&1) || true
	cp "$WORK"/ping-*.flent.gz "$DATA/flent.flent.gz"
	kill %%
}

capture_files() {
	cat >"$WORK/pingpong.py" <<-'END'
		import socket, threading
		server = socket.create_server(("127.0.0.1", 7777))
		def serve():
		    peer, _ = server.accept()
		    while data := peer.recv(4096):
		        peer.sendall(data)
		threading.Thread(target=serve, daemon=True).start()
		client = socket.create_connection(("127.0.0.1", 7777))
		for _ in range(20):
		    client.sendall(b"x" * 100)
		    client.recv(4096)
		client.close()
	END
	for form in icmp tcp; do
		dumpcap -q -P -i lo -s 96 -f $form -w "$WORK/$form.pcap" >/dev/null 2>&1 &
		sleep 1
		if [ $form = icmp ]; then
			lose 'icmp type echo-request numgen inc mod 7 == 3 drop'
			ping -c 20 -i 0.02 -W 0.1 127.0.0.1 >"$DATA/capture_icmp_ping.txt" || true
			lose_nothing
		else python3 "$WORK/pingpong.py"; fi
		sleep 1
		kill %%
		wait %% || true
		cp "$WORK/$form.pcap" "$DATA/capture_$form.pcap"
		editcap -F pcapng "$WORK/$form.pcap" "$DATA/capture_$form.pcapng"
	done
	tshark -r "$DATA/capture_icmp.pcap" -T fields -E header=y -E separator=, -e frame.number -e icmp.resptime >"$DATA/capture_icmp_tshark.csv" 2>/dev/null
}

twamp_files() {
	mkdir "$WORK/ow"
	touch "$WORK/ow/owamp-server.conf" "$WORK/ow/owamp-server.limits"
	owampd -Z -f -c "$WORK/ow" -d "$WORK/ow" -R "$WORK/ow" -S 127.0.0.1:861 >/dev/null 2>&1 &
	until_open 861
	owping -c 20 -i 0.02 -R 127.0.0.1:861 >"$DATA/owping_raw.txt"
	owping -c 20 -i 0.02 127.0.0.1:861 >"$DATA/owping.txt"
	kill %%
}

if [ -z "${WORK:-}" ]; then
	WORK=$(mktemp -d) exec unshare --map-root-user --net --pid --fork --kill-child --mount-proc "$0" "$@"
fi
trap 'rm -r "$WORK"' EXIT
ip link set lo up
# netperf asks for addresses of families that this host has others of than of loopback
ip address add 10.0.0.1/32 dev lo
for part in "${@:-ping iperf http store net capture twamp}"; do
	for one in $part; do "${one}_files"; done
done
