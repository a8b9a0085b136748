#!/bin/bash
#
# vmfetch.sh SERIES [SUITE] - make a stock Debian kernel ready for vmrun.sh.
#
#   vmfetch.sh 6.1                     the newest 6.1 of Debian
#   vmfetch.sh arm64:6.12              that of another machine
#   vmfetch.sh 6.16 trixie-backports   from a suite that suite_of() does not tell
#
# Unpacks the kernel into $VMRUN_HOME/k/SERIES (default: build/vm of this
# checkout) and builds its initramfs. A kernel that is there already is kept;
# remove the folder to get a newer one. The machine's own apt state is not
# touched, and signatures are checked.
#
# A guest of another machine has a Debian 12 of that machine for its files, which is
# unpacked into $VMRUN_HOME/root/MACHINE; also C programs are built against it.
#
# Needs: qemu-system-x86 busybox-static kmod cpio xz-utils zstd, on Debian amd64; for
# arm64 also qemu-system-arm and debootstrap, as root.

set -eu

HERE=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
VMRUN_HOME=${VMRUN_HOME:-$HERE/../../build/vm}
PATH=$PATH:/usr/sbin:/sbin

die() {
	printf 'vmfetch: %s\n' "$1" >&2
	exit 1
}

suite_of() {
	case ${1#*:} in
	5.10) echo bullseye-security ;;
	6.1 | 6.12) echo bookworm-security ;;
	6.* | 7.*) echo trixie-backports ;;
	*) die "no suite is known for kernel $1; name it as the second argument" ;;
	esac
}

# The mirror that this machine's apt uses. Security updates have an archive of
# their own, which stands beside the main one.
mirror_of() {
	local uris main
	# shellcheck disable=SC2016 # apt expands it
	uris=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sort -u)
	main=$(grep -m1 -ve '-security/*$' <<<"$uris") ||
		die "apt has no mirror of Debian; see /etc/apt/sources.list"
	case $1 in
	*-security) grep -m1 -e '-security/*$' <<<"$uris" || echo "${main%/}-security" ;;
	*) echo "$main" ;;
	esac
}

# Sets apt_options: lists of SUITE alone, in a folder of our own.
use_suite() {
	local folder=$home/apt/$machine-$1 keys=/usr/share/keyrings/debian-archive-keyring.gpg mirror
	mirror=$(mirror_of "$1")
	mkdir -p "$folder/lists/partial"
	echo "deb [signed-by=$keys] $mirror $1 main" >"$folder/sources.list"
	apt_options=(
		-o "Dir::Etc::sourcelist=$folder/sources.list"
		-o Dir::Etc::sourceparts=-
		-o "Dir::State::lists=$folder/lists"
		-o Dir::State::status=/dev/null
		-o "APT::Architecture=$machine"
		-o "APT::Architectures::=$machine"
		-o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
		-o APT::Sandbox::User=root
	)
	apt-get "${apt_options[@]}" -qq update || die "cannot read the package lists of $1"
}

newest_release() {
	apt-cache "${apt_options[@]}" search --names-only \
		"^linux-image-${1//./\\.}\\.[0-9].*-$machine\$" |
		sed -n 's/^linux-image-\([^ ]*\).*/\1/p' |
		grep -vE 'cloud|-rt-' | sort -V | tail -n 1
}

# From 7.0 on, linux-image-* is empty and three packages share its content.
packages_of() {
	if apt-cache "${apt_options[@]}" show "linux-modules-$1" >/dev/null 2>&1; then
		echo "linux-base-$1 linux-binary-$1 linux-modules-$1"
	else
		echo "linux-image-$1"
	fi
}

download() { # RELEASE FOLDER
	local debs=$2/debs deb packages
	mkdir -p "$debs"
	packages=$(packages_of "$1")
	# shellcheck disable=SC2086 # one word per package
	(cd "$debs" && apt-get "${apt_options[@]}" -qq download $packages) ||
		die "cannot download $packages"
	for deb in "$debs"/*.deb; do
		dpkg -x "$deb" "$2"
	done
	rm -r "$debs"
	[ -e "$2/lib" ] || ln -s usr/lib "$2/lib"
}

# Hardware drivers are most of the size, and depmod spends 10 s on them.
KEPT='^drivers/(virtio|char/hw_random)/|^drivers/net/[^/]+\.ko'
KEPT+='|^drivers/net/(vxlan|bonding|macvlan|ipvlan|wireguard|ethernet/intel/e1000)/'
KEPT+='|virtio_(blk|console|net)\.ko|^drivers/(block/brd|md/dm-(mod|delay))\.ko'

drop_drivers() { # FOLDER OF MODULES
	(
		cd "$1/kernel"
		rm -rf sound
		find drivers -name '*.ko*' | grep -vE "$KEPT" | xargs rm -f
	)
}

fetch() { # SERIES SUITE FOLDER
	local release
	use_suite "$2"
	release=$(newest_release "${1#*:}")
	[ -n "$release" ] || die "no kernel $1 in $2"
	download "$release" "$3"
	drop_drivers "$3/lib/modules/$release"
	depmod -b "$3" "$release"
	/usr/bin/python3 "$HERE/unpack_vmlinux.py" \
		"$(find "$3" -name 'vmlinuz*' -type f | head -n 1)" "$3"
	echo "$release" >"$3/release"
	echo "$KEPT" >"$3/kept"
}

# The modules that mount the root, decompressed, in the order to load them.
add_modules() { # FOLDER INITRAMFS
	local release module file name
	release=$(<"$1/release")
	for module in virtio_pci 9pnet_virtio 9p overlay; do
		modprobe -d "$1" -S "$release" --show-depends "$module" ||
			die "kernel $release has no module $module"
	done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
		name=$(basename "$file" | sed 's/\.ko.*/.ko/')
		case $file in
		*.xz) xz -dc "$file" ;;
		*.zst) zstd -dcq "$file" ;;
		*) cat "$file" ;;
		esac >"$2/modules/$name"
		echo "$name" >>"$2/modules/order"
	done
}

make_initramfs() { # FOLDER
	scratch=$(mktemp -d)
	trap 'rm -rf "$scratch"' EXIT
	mkdir -p "$scratch"/{bin,modules,proc,sys,dev,lower,upper,new}
	! ldd "$root/bin/busybox" >/dev/null 2>&1 ||
		die "$root/bin/busybox needs libraries, which an initramfs has not; apt-get install busybox-static"
	cp "$root/bin/busybox" "$scratch/bin/busybox"
	ln -s busybox "$scratch/bin/sh"
	install -m 755 "$HERE/guest-init.sh" "$scratch/init"
	install -m 755 "$HERE/guest-run.sh" "$scratch/guest-run"
	: >"$scratch/modules/order"
	add_modules "$1" "$scratch"
	(cd "$scratch" && find . | cpio -o -H newc --quiet) >"$1/initramfs.new"
	mv "$1/initramfs.new" "$1/initramfs" # a guest may boot from the one before
}

# What guests of another machine run on, and C programs for them are built against.
FILES=busybox-static,dmsetup,ethtool,iproute2,kmod,libbpf-dev,libbpfcc,libpython3-dev
FILES+=,openssl,python3,systemd,wireguard-tools

# Nothing of another machine runs here, so packages are unpacked and none is set up: of
# what that would have made, users and localhost are needed, and Python's own bytecode,
# without which each program begins with a minute of compiling in a guest.
make_root() { # FOLDER
	local deb
	[ "$(id -u)" = 0 ] || die "must be root, to make a Debian of $machine"
	rm -rf "$1" "$1.new"
	mkdir -p "${1%/*}"
	debootstrap --foreign --arch="$machine" --variant=minbase --include="$FILES" \
		bookworm "$1.new" "$(mirror_of bookworm)" >"$1.log" 2>&1 ||
		die "debootstrap failed: $(tail -n 1 "$1.log")"
	for deb in "$1.new"/var/cache/apt/archives/*.deb; do
		dpkg -x "$deb" "$1.new"
		rm "$deb"
	done
	cp "$1.new/usr/share/base-passwd/passwd.master" "$1.new/etc/passwd"
	cp "$1.new/usr/share/base-passwd/group.master" "$1.new/etc/group"
	echo '127.0.0.1 localhost' >"$1.new/etc/hosts"
	compile "$1.new/usr/lib/python3.11"
	echo "$FILES" >"$1.new/made-of"
	mv "$1.new" "$1"
}

# By a Python of the same version, or by none.
compile() { # FOLDER
	local python=/usr/bin/${1##*/}
	[ ! -x "$python" ] || "$python" -m compileall -q -j 0 "$1" >/dev/null || true
}

main() {
	local series=${1:?"usage: vmfetch.sh SERIES [SUITE]"} folder
	case $series in
	*:*) machine=${series%%:*} ;;
	*) machine=amd64 ;;
	esac
	mkdir -p "$VMRUN_HOME/k"
	home=$(cd "$VMRUN_HOME" && pwd)
	folder=$home/k/$series
	exec 9>"$home/lock" # tests run side by side
	flock 9
	root=/
	if [ "$machine" != amd64 ]; then
		root=$home/root/$machine
		[ "$FILES" = "$(cat "$root/made-of" 2>/dev/null)" ] || make_root "$root"
	fi
	if [ ! -e "$folder/vmlinux" ] || [ "$KEPT" != "$(cat "$folder/kept" 2>/dev/null)" ]; then
		rm -rf "$folder"
		mkdir -p "$folder"
		fetch "$series" "${2:-$(suite_of "$series")}" "$folder"
	fi
	make_initramfs "$folder"
	# Under sudo the checkout stays its owner's; what guests take for / is root's.
	[ -z "${SUDO_UID:-}" ] || find "$home" -path "$home/root" -prune -o \
		-exec chown -h "$SUDO_UID:${SUDO_GID:-0}" {} +
}

main "$@"
