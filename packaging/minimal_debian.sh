# shellcheck shell=bash disable=SC2154
#
# minimal_debian.sh - a minimal Debian in a folder, to build or try something in.
#
# Read by who needs one, as root; that has set SUITE (bookworm), `work`, a folder of its
# own, and `root`, the Debian's folder in it; and ARCH where it is another machine's, whose
# programs run here. What debootstrap made is kept in CACHE.

CACHE=/var/cache/latprof/chroot
SECURE_PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# die WHY [STATUS]
die() {
	printf '%s: %s\n' "$(basename "$0" .sh)" "$1" >&2
	exit "${2:-1}"
}

say() {
	printf '== %s\n' "$1" >&2
}

# The host's mirror, where the host is a Debian; else debootstrap's own.
mirror() {
	# shellcheck disable=SC2016 # for apt-get
	apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' \
		'Origin: Debian' 'Label: Debian' | head -n 1
}

make_base() {
	say "making a minimal Debian, $SUITE${ARCH:+ for $ARCH}"
	# shellcheck disable=SC2046 # none where there is no mirror
	debootstrap ${ARCH:+"--arch=$ARCH"} --variant=minbase "$SUITE" "$work/base" $(mirror) \
		>"$work/debootstrap.log" 2>&1 || {
		tail -n 5 "$work/debootstrap.log" >&2
		die 'debootstrap failed'
	}
	mkdir -p "$CACHE"
	tar -C "$work/base" -cf "$work/base.tar" .
	mv "$work/base.tar" "$1"
	rm -rf "$work/base"
}

make_debian() {
	local base=$CACHE/$SUITE${ARCH:+-$ARCH}.tar
	[ -e "$base" ] || make_base "$base"
	mkdir "$root"
	tar -C "$root" -xpf "$base"
	# What this machine needs to reach and trust its network; a fresh Debian has its own.
	cp /etc/resolv.conf "$root/etc/"
	apt-config dump | grep '^Acquire::' >"$root/etc/apt/apt.conf.d/99host" || true
	cp -r /usr/local/share/ca-certificates "$root/usr/local/share/"
	[ ! -e /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/"
}

# In a mount namespace of this process: the mounts end with it, and what
# removes the folder cannot reach through them.
mount_kernel_folders() {
	mount --bind "$root" "$root" # / is a mount point on a real machine, too
	mount -t proc proc "$root/proc"
	mount --rbind /sys "$root/sys"
	mount --rbind /dev "$root/dev"
	mount -t tmpfs tmpfs "$root/run"
}

# inside_at FOLDER COMMAND...: as sudo would start it, in a folder of the Debian.
inside_at() {
	local name proxies=()
	for name in http_proxy https_proxy no_proxy PIP_INDEX_URL SOURCE_DATE_EPOCH; do
		[ -z "${!name+set}" ] || proxies+=("$name=${!name}")
	done
	# shellcheck disable=SC2016 # for the shell inside
	chroot "$root" env -i "${proxies[@]}" HOME=/root PATH="$SECURE_PATH" LANG=C.UTF-8 \
		sh -c 'cd "$1" && shift && exec "$@"' sh "$@"
}

# What the Debian takes on the disk.
megabytes() {
	inside_at / du -xsm / 2>/dev/null | cut -f1
}
