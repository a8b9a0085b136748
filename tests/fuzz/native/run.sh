#!/bin/bash
#
# run.sh SECONDS [TARGET ...] - tries the parsers of both C programs with inputs
# that nobody thought of, for so long in all. Needs clang with its runtime
# (clang, libclang-rt-dev) and the headers of Python, libbpf and libcrypto.
#
#   load_options, link_options   any command line
#   responder, client            any bytes and any turn of the network
#   bulk                         any frames and plans, datagrams in any order
#   handshake                    any bytes before a session, to either side
#   path                         any packets through the link
#   rows                         any columns of a table
#   kernel_types                 any name, asked of the running kernel
#   peers                        the programs themselves, against a hostile peer
#
# The corpus grows in build/fuzz/corpus ($FUZZ_OUT: elsewhere). Ends with 1 at the
# first finding, which is then in build/fuzz/findings, and with 2 where it cannot be
# built. Each run tries other inputs, unless $FUZZ_SEED is a number.
#
# run.sh check - only says whether the runtime is there.

set -eu

here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../../.."
out=${FUZZ_OUT:-$PWD/build/fuzz}
native=agent/native

die() {
	echo "run.sh: $1" >&2
	exit "${2-1}"
}

flags=(-std=gnu11 -D_GNU_SOURCE -g -O1 -fno-omit-frame-pointer
	"-fsanitize=address,undefined,float-cast-overflow"
	-fno-sanitize-recover=all)
libraries=(-lm)
clang=${CC:-clang}

# Before minutes are spent on what needs none.
need_runtime() {
	local version package made=$out/check.$$
	version=$("$clang" -dumpversion 2>/dev/null) ||
		die "cannot fuzz: there is no $clang; apt-get install clang, and run it again" 2
	package=libclang-rt-${version%%.*}-dev
	mkdir -p "$out"
	echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' |
		"$clang" "${flags[@]}" -fsanitize=fuzzer -x c - -o "$made" 2>/dev/null ||
		die "cannot fuzz: $clang has no runtime library; apt-get install $package" 2
	rm "$made"
}

seconds=${1-}
if [ "$seconds" = check ]; then
	need_runtime
	exit
fi
[[ $seconds =~ ^[1-9][0-9]*$ ]] || die "give the SECONDS to run for, got '$seconds'" 2
shift
all=(load_options link_options responder client handshake bulk path rows
	kernel_types peers)
targets=("${@:-${all[@]}}")

# load NAME ... - sources of latprof-load
load() { printf "$native/load/%s.c " "$@"; }

# What a target is made of, besides its own file.
sources_of() {
	case $1 in
	load_options) load flags workload && echo "$here/words.c $native/failure.c" ;;
	link_options) echo "$native/link/options.c $native/link/loss_model.c" \
		"$here/words.c $native/failure.c" ;;
	responder) load responder stream wire payload ;;
	client) load client closed open exchange stream wire payload loss outstanding \
		records schedule && echo "$native/failure.c" ;;
	bulk) load bulk_frames bulk_plan bulk_totals pace sequence slots ;;
	handshake) load arrival handshake interrupts session rate sha256 && echo "$native/failure.c" ;;
	path) echo "$native/link/path.c $native/link/loss_model.c" ;;
	rows) ;;
	kernel_types) echo "$native/kernel_types.c $native/log.c" ;;
	*) die "no target $1; there are ${all[*]}" 2 ;;
	esac
}

build_target() {
	local sources own=("${flags[@]}") more=("${libraries[@]}")
	sources=$(sources_of "$1") || exit
	case $1 in
	rows)
		read -ra extra <<<"$(pkg-config --cflags --libs python3-embed)"
		more+=("${extra[@]}")
		;;
	kernel_types) more+=(-lbpf) ;;
	handshake) more+=(-lcrypto) ;;
	*_options)
		# of each input, what the program keeps for good
		"$clang" "${own[@]}" -fsanitize=fuzzer-no-link -I"$native" \
			-include "$here/words.h" \
			-Dcalloc=words_calloc -Dfree=words_free \
			-c "$native/args.c" -o "$out/$1.args.o" || return
		more+=("$out/$1.args.o")
		;;
	esac
	# shellcheck disable=SC2086 # a list of files without spaces
	"$clang" "${own[@]}" -fsanitize=fuzzer -I"$native" \
		-I"$native/load" -I"$native/link" -I"$here" \
		-include "$here/world.h" "$here/$1.c" "$here/world.c" $sources \
		"${more[@]}" -o "$out/$1"
}

# The whole programs, as they are built for users, but with the sanitizers.
build_programs() {
	local c=(-pthread -I"$native")
	"$clang" "${flags[@]}" "${c[@]}" "$native"/load/*.c \
		"$native"/{args,failure}.c -lm -o "$out/latprof-load" || return
	"$clang" "${flags[@]}" "${c[@]}" "$native"/link/*.c \
		"$native"/{args,failure}.c -lm -o "$out/latprof-link"
}

fuzz() {
	local log=$out/$1.log options=()
	mkdir -p "$out/corpus/$1" "$here/seeds/$1"
	[ -e "$here/seeds/$1.dict" ] && options+=(-dict="$here/seeds/$1.dict")
	if ! "$out/$1" "${options[@]}" -max_total_time="$2" -max_len=4096 \
		-seed="${FUZZ_SEED:-0}" \
		-timeout=10 -rss_limit_mb=1024 -detect_leaks=1 \
		-artifact_prefix="$out/findings/$1-" \
		"$out/corpus/$1" "$here/seeds/$1" >"$log" 2>&1; then
		tail -n 40 "$log" >&2
		die "$1: a finding, see above, $log and the input in $out/findings"
	fi
	echo "$1: $(grep -o 'Done .*' "$log")," \
		"$(find "$out/corpus/$1" -type f | wc -l) inputs kept"
}

need_runtime
mkdir -p "$out/findings"
for target in "${targets[@]}"; do
	case $target in
	peers) build_programs ;;
	*) build_target "$target" ;;
	esac || die "cannot build $target: see above; apt-get install what it has not found" 2
done
share=$((seconds / ${#targets[@]}))
[ "$share" -gt 0 ] || share=1
export ASAN_OPTIONS=quarantine_size_mb=16:detect_stack_use_after_return=1
apart=()
[ "$(id -u)" = 0 ] || apart=(--user --map-root-user)
export UBSAN_OPTIONS=print_stacktrace=1
for target in "${targets[@]}"; do
	case $target in
	peers) # what a command line asks for is kept for good: no leak
		ASAN_OPTIONS+=:detect_leaks=0 unshare "${apart[@]}" --net -- \
			python3 -I "$here/peers.py" "$share" "$out" ${FUZZ_SEED:+"$FUZZ_SEED"} ;;
	*) fuzz "$target" "$share" ;;
	esac
done
