# shellcheck shell=bash disable=SC2153
#
# sources.sh - what the build reads of the checkout SOURCE, for who copies or compares it.

# sources [OPTIONS OF TAR]: a tar stream.
sources() {
	local path inputs=()
	for path in meson.build meson.options meson_options.txt pyproject.toml \
		README.md LICENSE bpf agent analysis packaging; do
		[ ! -e "$SOURCE/$path" ] || inputs+=("$path")
	done
	tar -C "$SOURCE" --exclude=__pycache__ --exclude='*.so' --exclude='*.o' \
		"$@" -cf - "${inputs[@]}"
}
