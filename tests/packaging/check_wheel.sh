#!/bin/bash
#
# check_wheel.sh WHEEL - does a wheel run on a fresh Debian without a compiler?
#
# Makes a minimal Debian in a temporary folder (LATPROF_CHROOT_SUITE: another release than
# Debian 12), installs Python, then the wheel with what it needs, and measures there. The
# versions are those of packaging/lock. As root; needs debootstrap and a network.

set -eu

CHECKOUT=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
SUITE=${LATPROF_CHROOT_SUITE:-bookworm}

# shellcheck source=packaging/minimal_debian.sh
. "$CHECKOUT/packaging/minimal_debian.sh"

inside() {
	inside_at /tmp "$@"
}

install_wheel() {
	local before=$SECONDS size
	size=$(megabytes)
	inside apt-get update >"$work/log" 2>&1
	inside env DEBIAN_FRONTEND=noninteractive apt-get install -y \
		--no-install-recommends ca-certificates python3-venv >>"$work/log" 2>&1
	inside python3 -Im venv /opt/latprof
	inside /opt/latprof/bin/python3 -Im pip install --quiet --no-cache-dir --no-compile \
		--disable-pip-version-check --constraint constraints --only-binary :all: \
		"$wheel"
	say "installed in $((SECONDS - before)) s, $(($(megabytes) - size)) MB with Python and pip"
	! inside sh -c 'command -v gcc || command -v cc || command -v clang' ||
		die 'there is a compiler'
}

check_programs() {
	local program
	for program in load link; do
		head -c 4 "$root"/opt/latprof/lib/python3*/site-packages/latprof_agent/bin/latprof-$program |
			grep -q ELF || die "latprof-$program is no executable of its own"
	done
	[ -s "$root/opt/latprof/share/man/man1/latprof-run.1" ] || die 'no man page'
	[ -s "$root/opt/latprof/share/latprof/systemd/latprof-agent.service" ] ||
		die 'no unit'
	inside "$latprof" completion bash | grep -q _shtab_latprof || die 'no completion'
}

check_run() {
	say 'probes, run and watch'
	inside "$latprof" probes --json >"$work/probes"
	grep -q '"state": "exact"' "$work/probes" || die 'no probe is exact'
	inside "$latprof" run --rounds 3 --json --out /tmp/run >"$work/run"
	inside /opt/latprof/bin/python3 -I - "$(<"$work/run")" <<'END_OF_PYTHON' ||
import csv, json, sys
run = json.loads(sys.argv[1])
assert run["state"] == "done", run["state"]
rows = [r for r in csv.DictReader(open("/tmp/run/messages.csv")) if r["kind"] != "warmup"]
trips = [*csv.DictReader(open("/tmp/run/round_trips.csv"))]
# a message there and one back for each round trip, at both ends
assert len(trips) > 10 and len(rows) == 2 * len(trips), (len(rows), len(trips))
assert all(r["sender_pid"] and r["reader_pid"] for r in rows)
END_OF_PYTHON
		die 'the run is not whole'
	inside "$latprof" watch --once --json | grep -q '"groups"' || die 'watch shows nothing'
}

check_without_extras() {
	say 'what is not installed is one line'
	! inside "$latprof" analyze /tmp/run 2>"$work/err" || die 'analyze ran without pandas'
	[ "$(cat "$work/err")" = "latprof: latprof analyze needs pandas, pyarrow, scipy, which \
are not installed; run \`/opt/latprof/bin/python3 -m pip install 'latprof[analysis]'\`" ] ||
		die "unclear: $(cat "$work/err")"
}

check() {
	latprof=/opt/latprof/bin/latprof
	wheel=/tmp/$(basename "$root"/tmp/*.whl)
	mount_kernel_folders
	install_wheel
	check_programs
	check_run
	check_without_extras
	say 'all is well'
}

main() {
	[ "$(id -u)" = 0 ] || die 'must be root'
	[ -f "${1:-}" ] || die 'needs a WHEEL'
	work=$(mktemp -d -p /var/tmp latprof-wheel.XXXXXX)
	root=$work/root
	trap 'rm -rf --one-file-system "$work"' EXIT
	make_debian
	cp "$1" "$root/tmp"
	# pip takes hashes of all or of none
	sed -nE 's/^([a-z0-9-]+==[^ ]+).*/\1/p' "$CHECKOUT/packaging/lock/run.txt" \
		>"$root/tmp/constraints"
	unshare --mount --propagation private "$0" --mounted "$work"
}

if [ "${1:-}" = --mounted ]; then
	work=$2
	root=$work/root
	check
else
	main "$@"
fi
