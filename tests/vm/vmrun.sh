#!/bin/bash
#
# vmrun.sh SERIES 'COMMAND' - run a command as root under another kernel.
#
# Boots a kernel that vmfetch.sh has made ready, in QEMU without KVM, on this
# machine's own files (of another machine: on those that vmfetch.sh unpacked, and on
# this checkout): / is read-only under an overlay in memory, so that nothing the
# guest writes reaches the host, but for the shared folder. Prints
# what COMMAND (bash) prints and exits with its status; 124 if time was up, 125
# if the guest did not come up or died.
#
#   VMRUN_MODE     real    (default) two CPUs, the host's clock
#                  parallel  two CPUs, each a thread of the host's: arm64 only
#                  exact   one CPU whose clock counts instructions (2 ns each) and
#                          skips idle time: delays are exact to 10 us on a loaded
#                          host. While the guest waits for a file its clock runs
#                          ahead, so run a program once before measuring with it.
#   VMRUN_NICS     models of network cards, e.g. "virtio-net-pci e1000": the guest
#                  has two of each, joined by a cable: pair P from 0 has the
#                  addresses 52:54:00:00:0P:01 and :02
#   VMRUN_CABLES   cards on cables to other guests, each as PATH:END, end 1 or 2 of
#                  the cable PATH (sockets PATH.1 and PATH.2, without blanks): cable C
#                  of this guest from 0 has the address 52:54:00:01:0C:0E, E its end
#   VMRUN_QMP      a socket to be made, on which QEMU may be asked (to stop the guest)
#   VMRUN_SYSTEMD  not empty: under systemd, which is the guest's first process
#   VMRUN_SHARE    a folder that the guest may write, at the same path
#   VMRUN_TIMEOUT  seconds of the host's time               (default 300)
#   VMRUN_MEMORY   of the guest                             (default 2G)
#   VMRUN_CPU      QEMU's model of an arm64 processor       (default neoverse-n1)
#   VMRUN_HOME     where the kernels are                    (default build/vm)
#   VMRUN_LOG      keep the kernel's console here           (default: not kept)

set -eu

HERE=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)

# A guest that hangs dies after two minutes, and its console says where it was.
HANGS_END='panic=-1 softlockup_panic=1 watchdog_thresh=60'

# It boots in 4 s, in 12 on a busy host. One in some 150 hung before its first process:
# then nothing of what is to run has begun, and it is booted again.
COMES_UP_IN=120
MOST_BOOTS=3

die() {
	printf 'vmrun: %s\n' "$1" >&2
	exit 125
}

# share TAG FOLDER SECURITY [OPTION]
share() {
	arguments+=(
		-fsdev "local,id=$1,path=$2,security_model=$3,multidevs=remap${4:-}"
		-device "virtio-9p-pci,fsdev=$1,mount_tag=$1"
	)
}

# One thread for both CPUs: with one for each, QEMU 7.2 may miss that a CPU has
# changed the kernel's code (attaching does), and then the other one spins for ever.
set_clock() {
	case $1 in
	real) arguments+=(-accel 'tcg,thread=single,tb-size=512' -smp 2) ;;
	parallel) arguments+=(-accel 'tcg,thread=multi,tb-size=512' -smp 2) ;;
	exact)
		arguments+=(
			-accel 'tcg,thread=single,tb-size=512' -smp 1
			-icount 'shift=1,sleep=off' -rtc clock=vm
		)
		;;
	*) die "VMRUN_MODE must be real, parallel or exact, got $1" ;;
	esac
}

# add_cards MODEL...: the hub of each pair lets all packets pass
add_cards() {
	local model pair=0 end card
	for model in "$@"; do
		for end in 1 2; do
			card=card$pair$end
			arguments+=(
				-netdev "hubport,id=$card,hubid=$pair"
				-device "$model,netdev=$card,romfile=,mac=52:54:00:00:0$pair:0$end"
			)
		done
		pair=$((pair + 1))
	done
}

# add_cables PATH:END...: what one end sends is read from the other end's socket
add_cables() {
	local cable number=0 path end
	for cable in "$@"; do
		path=${cable%:*} end=${cable##*:}
		arguments+=(
			-netdev "dgram,id=cable$number,local.type=unix,local.path=$path.$end,remote.type=unix,remote.path=$path.$((3 - end))"
			-device "virtio-net-pci,netdev=cable$number,romfile=,mac=52:54:00:01:0$number:0$end"
		)
		number=$((number + 1))
	done
}

# All that the guest needs to know lies on the control share.
write_control() { # FOLDER COMMAND
	mkdir "$1"
	printf '%s\n' "$2" >"$1/command"
	printf '%s=%q\n' FOLDER "$PWD" SHARE "$shared" SYSTEMD "${VMRUN_SYSTEMD:-}" \
		OUTPUT "$output" CHECKOUT "$checkout" >"$1/settings"
}

# Sets qemu, append, output (the guest's second serial line) and arguments of a machine.
# Without AVX: QEMU 7.2 gets some of it wrong, so that numpy sorts wrongly. The kernel
# is to do without cmpxchg16b (141), after which a guest's flags were those of a register
# once (a double fault in kmalloc); numpy asks the processor, and needs it to be there.
# Linux 7 gives BPF no storage without it (kmalloc_nolock): nothing would be followed.
set_machine() { # MACHINE SERIES
	case $1 in
	amd64)
		qemu=qemu-system-x86_64 output=/dev/ttyS1
		append='console=ttyS0 tsc=reliable no_timer_check'
		case $2 in [1-6].*) append+=' clearcpuid=141' ;; esac
		arguments+=(-cpu "max,la57=off,avx=off,avx2=off" -serial chardev:output)
		;;
	arm64)
		qemu=qemu-system-aarch64 output=/dev/ttyS0
		append='console=ttyAMA0'
		arguments+=(
			-machine virt -cpu "${VMRUN_CPU:-neoverse-n1}"
			-device "pci-serial,chardev=output"
		)
		;;
	*) die "no machine $1 is known" ;;
	esac
}

# The guest dies with whoever started this, however that ends.
boot() { # KERNEL
	local running seconds
	setpriv --pdeathsig KILL timeout -k 5 "${VMRUN_TIMEOUT:-300}" \
		setpriv --pdeathsig KILL "$qemu" \
		-nodefaults -no-user-config -display none -no-reboot -m "${VMRUN_MEMORY:-2G}" \
		-chardev "file,id=console,path=$console" -serial chardev:console \
		-chardev stdio,id=output,signal=off \
		-kernel "$1/vmlinux" -initrd "$1/initramfs" -append \
		"$append loglevel=7 $HANGS_END mitigations=off nokaslr" \
		"${arguments[@]}" </dev/null &
	running=$!
	for ((seconds = 0; seconds < COMES_UP_IN; seconds++)); do
		[ ! -e "$scratch/control/up" ] || break
		kill -0 "$running" 2>/dev/null || break
		sleep 1
	done
	[ -e "$scratch/control/up" ] || kill "$running" 2>/dev/null || true
	wait "$running"
}

main() {
	[ $# = 2 ] || die "usage: vmrun.sh SERIES 'COMMAND'"
	local home=${VMRUN_HOME:-$HERE/../../build/vm} kernel machine root=/ checkout=''
	local status boots
	kernel=$home/k/$1
	[ -e "$kernel/initramfs" ] || die "kernel $1 is not there; run vmfetch.sh $1"
	arguments=()
	case $1 in
	*:*)
		machine=${1%%:*}
		root=$home/root/$machine
		checkout=$(realpath "$HERE/../..")
		share checkout "$checkout" none ,readonly=on
		;;
	*) machine=amd64 ;;
	esac
	set_machine "$machine" "$1"
	set_clock "${VMRUN_MODE:-real}"
	# shellcheck disable=SC2086 # one word per model
	add_cards ${VMRUN_NICS:-}
	# shellcheck disable=SC2086 # one word per cable
	add_cables ${VMRUN_CABLES:-}
	[ -z "${VMRUN_QMP:-}" ] || arguments+=(-qmp "unix:$VMRUN_QMP,server=on,wait=off")
	scratch=$(mktemp -d)
	trap 'kill %% 2>/dev/null || true; rm -rf "$scratch"' EXIT
	console=${VMRUN_LOG:-$scratch/console}
	shared=$(realpath "${VMRUN_SHARE:-$(mktemp -d -p "$scratch")}")
	write_control "$scratch/control" "$2"
	share root "$root" none ,readonly=on
	share modules "$kernel/lib/modules/$(<"$kernel/release")" none ,readonly=on
	share share "$shared" none
	share control "$scratch/control" none

	for ((boots = 1; boots <= MOST_BOOTS; boots++)); do
		status=0
		boot "$kernel" || status=$?
		[ ! -e "$scratch/control/up" ] || break
		tail -n 10 "$console" >&2
		echo "vmrun: the guest did not come up ($boots of $MOST_BOOTS times)" >&2
	done
	[ ! -s "$scratch/control/status" ] || exit "$(<"$scratch/control/status")"
	tail -n 40 "$console" >&2
	[ "$status" != 124 ] || {
		echo "vmrun: time was up" >&2
		exit 124
	}
	die "the guest died without a status (qemu: $status); its console is above"
}

main "$@"
