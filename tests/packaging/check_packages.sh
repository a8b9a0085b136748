#!/bin/bash
#
# check_packages.sh FOLDER - do the debs and the tarball of a folder work on a fresh Debian?
#
# Makes a minimal Debian in a temporary folder (LATPROF_CHROOT_SUITE: another release than
# Debian 12), installs the debs that FOLDER has for it, measures there, and upgrades,
# removes and purges them; then the tarball, beside Debian's Python. As root; needs
# debootstrap and a network; a minute.

set -eu

CHECKOUT=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
SUITE=${LATPROF_CHROOT_SUITE:-bookworm}
TREE=/usr/lib/latprof

# shellcheck source=packaging/minimal_debian.sh
. "$CHECKOUT/packaging/minimal_debian.sh"

inside() {
	inside_at /tmp "$@"
}

apt_get() {
	inside env DEBIAN_FRONTEND=noninteractive apt-get -y --no-install-recommends \
		-o Dpkg::Options::=--force-confold "$@" >"$work/log" 2>&1 || {
		tail -n 5 "$work/log" >&2
		die "apt-get $1 failed"
	}
}

# It stands in for systemd, which does not run here: what it is asked for is in a file.
put_systemctl() {
	mkdir -p "$root/run/systemd/system"
	printf '#!/bin/sh\necho "$@" >>/tmp/systemctl\n' >"$root/usr/bin/systemctl"
	chmod 755 "$root/usr/bin/systemctl"
}

# asked WORDS: of systemd, since the last time.
asked() {
	grep -qx -- "$1" "$root/tmp/systemctl" || die "systemctl was not asked to: $1"
}

check_install() {
	local size begun
	apt_get update
	apt_get clean
	size=$(megabytes)
	begun=$(date +%s%N)
	apt_get install /packages/latprof.deb
	inside latprof run --protocol tcp --rounds 3 --out /tmp/run >"$work/out"
	begun=$((($(date +%s%N) - begun) / 1000000))
	apt_get clean
	say "first answer after $begun ms, $(($(megabytes) - size)) MB with Python"
	head -n 2 "$work/out" >&2
	! inside sh -c 'command -v gcc || command -v cc || command -v clang' ||
		die 'there is a compiler'
	[ "$(inside latprof --version)" = "latprof $version" ] || die 'another version'
	inside latprof probes >"$work/out"
	grep -q exact "$work/out" || die 'no probe is exact'
	inside test -s /usr/share/man/man1/latprof-run.1.gz -a \
		-s /usr/share/bash-completion/completions/latprof \
		-a -s /usr/share/latprof/grafana/latprof.json || die 'a file is missing'
	inside latprof agent --config /etc/latprof/agent.toml --check-config >/dev/null
	if grep -qE 'start|enable' "$root/tmp/systemctl"; then die 'it started a service'; fi
}

# What is run, also by root, leaves nothing in the tree that dpkg would not remove.
check_tree() {
	inside find "$TREE" ! -type d | sort >"$work/there"
	inside sh -c 'dpkg -L latprof latprof-analysis 2>/dev/null' | sort -u |
		comm -23 "$work/there" - >"$work/strays"
	[ ! -s "$work/strays" ] || die "not of the package: $(head -n 3 "$work/strays")"
}

check_analysis() {
	say 'latprof-analysis'
	inside latprof analyze /tmp/run 2>"$work/err" >/dev/null &&
		die 'it works without its package'
	grep -q 'apt install latprof-analysis' "$work/err" || die "unclear: $(cat "$work/err")"
	apt_get install /packages/latprof-analysis.deb
	inside latprof analyze /tmp/run >"$work/out"
	inside latprof rebuild /tmp/run --out /tmp/rebuilt >/dev/null
	inside latprof compare /tmp/run /tmp/rebuilt >/dev/null
	check_tree
}

# A later one, with another configuration.
make_later() {
	dpkg-deb --raw-extract "$root/packages/latprof.deb" "$work/later"
	sed -i "s/^Version: .*/Version: 99/" "$work/later/DEBIAN/control"
	echo '# later' >>"$work/later/etc/latprof/agent.toml"
	dpkg-deb -Znone --build "$work/later" "$root/packages/later.deb" >/dev/null
}

check_upgrade() {
	say 'upgrade, remove, purge'
	make_later
	apt_get remove latprof-analysis
	echo '# mine' >>"$root/etc/latprof/agent.toml"
	: >"$root/tmp/systemctl"
	apt_get install /packages/later.deb
	asked daemon-reload
	asked 'try-restart latprof-agent.service latprof-fleet.service'
	if grep -qE 'stop|disable' "$root/tmp/systemctl"; then die 'it stopped a service'; fi
	tail -n 1 "$root/etc/latprof/agent.toml" | grep -qx '# mine' ||
		die 'the configuration was overwritten'
}

check_removal() {
	: >"$root/tmp/systemctl"
	mkdir -p "$root/var/lib/private/latprof-agent/stories"
	apt_get remove latprof
	asked 'stop latprof-agent.service latprof-fleet.service'
	asked '--quiet disable latprof-agent.service latprof-fleet.service'
	[ ! -e "$root$TREE" ] || die "left: $(find "$root$TREE" | head -n 3)"
	grep -qx '# mine' "$root/etc/latprof/agent.toml" || die 'it removed the configuration'
	[ -e "$root/var/lib/private/latprof-agent/stories" ] || die 'it removed stories'
	apt_get purge latprof
	[ ! -e "$root/etc/latprof" ] || die 'purge left the configuration'
	[ ! -e "$root/var/lib/private/latprof-agent" ] || die 'purge left stories'
	[ -z "$(inside find /usr /etc /var/lib/latprof-agent -name '*latprof*' 2>/dev/null)" ] ||
		die "left: $(inside find /usr /etc -name '*latprof*' | head -n 3)"
}

check_tarball() {
	say 'tarball'
	local python
	python=$(inside python3 -Ic 'import sys; print("%d.%d" % sys.version_info[:2])')
	mkdir "$root/a folder"
	inside tar -C '/a folder' -xzf "/packages/latprof-$version-python$python-$(uname -m).tar.gz"
	inside "/a folder/latprof-$version/bin/latprof" run --protocol tcp --rounds 3 \
		--out /tmp/of_tarball >"$work/out"
	inside tar -C '/a folder' -xzf \
		"/packages/latprof-analysis-$version-python$python-$(uname -m).tar.gz"
	inside ln -s "/a folder/latprof-$version/bin/latprof" /usr/local/bin/latprof
	inside latprof analyze /tmp/of_tarball >/dev/null
	# as on a host that has another Python
	inside ln -sfn /usr/bin/none "/a folder/latprof-$version/bin/python3"
	if inside latprof --version 2>"$work/err"; then die 'it ran without its Python'; fi
	[ "$(wc -l <"$work/err")" = 1 ] || die "not one line: $(<"$work/err")"
	grep -q 'which is not here' "$work/err" || die "no reason: $(<"$work/err")"
}

check() {
	mount_kernel_folders
	version=$(dpkg-deb --field "$root/packages/latprof.deb" Version)
	version=${version%-*}
	put_systemctl
	: >"$root/tmp/systemctl"
	check_install
	check_tree
	check_analysis
	check_upgrade
	check_removal
	check_tarball
	say 'all is well'
}

main() {
	[ $# = 1 ] || die 'needs FOLDER'
	[ "$(id -u)" = 0 ] || die 'must be root'
	command -v debootstrap >/dev/null || die 'needs debootstrap'
	case $SUITE in
	bookworm) release=deb12 ;;
	trixie) release=deb13 ;;
	*) die "no packages are made for $SUITE" ;;
	esac
	work=$(mktemp -d -p /var/tmp latprof-packages.XXXXXX)
	root=$work/root
	trap 'rm -rf --one-file-system "$work"' EXIT
	make_debian
	mkdir "$root/packages"
	for name in latprof latprof-analysis; do
		cp "$1/${name}"_*~"$release"_*.deb "$root/packages/$name.deb"
	done
	cp "$1"/*.tar.gz "$root/packages"
	unshare --mount --propagation private "$0" --mounted "$work"
}

if [ "${1:-}" = --mounted ]; then
	work=$2
	root=$work/root
	check
else
	main "$@"
fi
