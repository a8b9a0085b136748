#!/bin/bash
#
# check_chroot.sh - do the README's commands work on a fresh Debian?
#
# Makes a minimal Debian in a temporary folder, puts a copy of this checkout
# into it and calls packaging/latprof there, as its first user would. Everything
# is gone at the end but the minimal Debian, which is kept for the next time. As
# root; needs debootstrap and a network; 2 minutes.
#
#   check_chroot.sh           set up, run, upgrade, uninstall
#   check_chroot.sh --first   only the README's first command, as it stands there
#   check_chroot.sh --test    all, and `packaging/latprof test`
#
# LATPROF_CHROOT_SUITE names another release than Debian 12: trixie.

set -eu

CHECKOUT=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
SUITE=${LATPROF_CHROOT_SUITE:-bookworm}
OWNER=1000 # of the copy, so that files which root leaves in it stand out
# shellcheck source=packaging/minimal_debian.sh
. "$CHECKOUT/packaging/minimal_debian.sh"

put_checkout() {
	mkdir "$root/src"
	tar -C "$CHECKOUT" --exclude=./.git --exclude=./build --exclude=./.venv \
		--exclude=./runs --exclude=__pycache__ --exclude='*.so' --exclude='*.o' \
		--exclude='.*_cache' --exclude=.hypothesis -cf - . |
		tar -C "$root/src" --no-same-owner -xf -
	chown -R "$OWNER:$OWNER" "$root/src"
}

inside() {
	inside_at /src "$@"
}

checkout_files() {
	(cd "$root/src" && find . -printf '%p %u\n' | sort)
}

# Where the set-up puts things. Debian's python3.11-minimal makes its own folder.
places() {
	inside find /opt /usr/local ! -path '*/man/man1' \
		! -path '/usr/local/lib/python3*' | sort
}

check_without_network() {
	say 'without a network: one line that names the log'
	! unshare --net chroot "$root" env -i PATH="$SECURE_PATH" \
		/src/packaging/latprof run >"$work/out" 2>"$work/err" ||
		die 'the set-up succeeded without a network'
	[ "$(grep -c '^latprof: .*/var/log/latprof-setup.log$' "$work/err")" = 1 ] ||
		die "unclear: $(cat "$work/err")"
}

check_run() {
	say 'packaging/latprof run'
	inside packaging/latprof run --rounds 3 --json --out /tmp/run >"$work/out"
	inside python3 -m json.tool <"$work/out" >/dev/null ||
		die 'standard output is not one JSON document'
	[ -s "$root/tmp/run/messages.csv" ] || die 'no messages.csv'
}

check_second_call() {
	say 'again: nothing to do'
	inside packaging/latprof install 2>"$work/err"
	[ "$(cat "$work/err")" = "latprof-setup: ready; run \`sudo latprof run\`" ] ||
		die "the second call did something: $(cat "$work/err")"
	inside latprof probes >/dev/null
}

# Where all is there already, it does not matter which distribution it is.
check_other_distribution() {
	say 'on another distribution, with all that is needed'
	printf 'ID=fedora\n' >"$work/os-release"
	mount --bind "$work/os-release" "$root/usr/lib/os-release"
	inside packaging/latprof install
	umount "$root/usr/lib/os-release"
}

# What shells and man find, each at its place.
check_shell() {
	say 'man pages and completions'
	local name
	for name in latprof latprof-run latprof-compare; do
		inside test -s "/usr/local/share/man/man1/$name.1" ||
			die "no man page of $name"
	done
	# shellcheck disable=SC2016 # for the shell inside
	inside bash -c '. /usr/local/share/bash-completion/completions/latprof
		COMP_WORDS=(latprof run --protoc) COMP_CWORD=2
		_shtab_latprof
		[ "${COMPREPLY[*]}" = --protocol ]' || die 'bash does not complete'
}

check_upgrade() {
	say 'an upgrade that fails leaves the version that works'
	local source=$root/src/agent/native/drain.c
	cp "$source" "$work/drain.c"
	echo 'int broken(' >>"$source"
	! inside packaging/latprof upgrade 2>"$work/err" || die 'it was built'
	cat "$work/drain.c" >"$source"
	grep -q 'the version before is in place again: latprof ' "$work/err" ||
		die "unclear: $(cat "$work/err")"
	inside latprof probes >/dev/null
	check_shell
	say 'an upgrade that works'
	source=$root/src/analysis/latprof_analysis/version.py
	cp "$source" "$work/version"
	sed 's/^VERSION = .*/VERSION = "99"/' "$work/version" >"$source"
	inside packaging/latprof upgrade
	cat "$work/version" >"$source"
	[ "$(inside latprof --version)" = 'latprof 99' ] || die 'it is not the new version'
}

check_uninstall() {
	say 'uninstall removes what was made, and nothing else'
	echo mine >"$root/usr/local/share/man/man1/latprof-mine.1"
	inside packaging/latprof uninstall
	rm "$root/usr/local/share/man/man1/latprof-mine.1"
	places | diff "$work/places" - ||
		die 'it left something, or took too much'
	[ -s "$root/tmp/run/messages.csv" ] || die 'it removed a run folder'
	inside clang --version >/dev/null || die 'it removed packages'
	inside packaging/latprof uninstall || die 'a second time, it fails'
}

check() {
	mount_kernel_folders
	if [ "${1:-}" = --first ]; then
		inside packaging/latprof run
		return
	fi
	checkout_files >"$work/before"
	places >"$work/places"
	check_without_network
	check_run
	check_second_call
	check_other_distribution
	if [ "${1:-}" = --test ]; then
		say 'packaging/latprof test'
		inside packaging/latprof test
	fi
	check_shell
	check_upgrade
	check_uninstall
	checkout_files | diff "$work/before" - ||
		die 'files were left in the checkout, or changed hands'
	say 'all is well'
}

main() {
	[ "$(id -u)" = 0 ] || die 'must be root'
	command -v debootstrap >/dev/null || die 'needs debootstrap'
	work=$(mktemp -d -p /var/tmp latprof-chroot.XXXXXX)
	root=$work/root
	trap 'rm -rf --one-file-system "$work"' EXIT
	# a run folder in a user's checkout is for who has that user by sudo
	[ "${1:-}" != --first ] || OWNER=0
	make_debian
	put_checkout
	unshare --mount --propagation private "$0" --mounted "$work" "$@"
}

if [ "${1:-}" = --mounted ]; then
	work=$2
	root=$work/root
	shift 2
	check "$@"
else
	main "$@"
fi
