# shellcheck shell=bash
#
# packages.sh - what latprof needs of the distribution, and how to install it.
#
# A part of the set-up: packaging/latprof reads it.

# One row per need: when (a wheel needs venv alone), how to find out that it is there, its package. The compilers
# beside its own are Debian 12's alone.
requirements() {
	cat <<'END'
run  program clang              clang            clang                clang             clang             clang
run  program gcc                gcc              gcc                  gcc               gcc               gcc
run  header  stdio.h            libc6-dev        glibc-devel          glibc             glibc-devel       musl-dev
run  header  linux/bpf.h        linux-libc-dev   kernel-headers       linux-api-headers linux-glibc-devel linux-headers
run  program pkg-config         pkg-config       pkgconf-pkg-config   pkgconf           pkg-config        pkgconf
run  library libbpf             libbpf-dev       libbpf-devel         libbpf            libbpf-devel      libbpf-dev
test library libcrypto          libssl-dev       openssl-devel        openssl           libopenssl-3-devel openssl-dev
run  library python3            python3-dev      python3-devel        python            python3-devel     python3-dev
venv module  ensurepip          python3-venv     python3              python            python3           python3
test program ip                 iproute2         iproute              iproute2          iproute2          iproute2
test program tc                 iproute2         iproute-tc           iproute2          iproute2          iproute2
test program ethtool            ethtool          ethtool              ethtool           ethtool           ethtool
test program iperf3             iperf3           iperf3               iperf3            iperf             iperf3
test program irtt               irtt             irtt                 irtt              irtt              irtt
test shared  libbcc.so.0        python3-bpfcc    python3-bcc          python-bcc        python3-bcc       py3-bcc
test library fuse3              libfuse3-dev     fuse3-devel          fuse3             fuse3-devel       fuse3-dev
test program node               nodejs           nodejs               nodejs            nodejs            nodejs
test program redis-server       redis-server     redis                redis             redis             redis
test program redis-benchmark    redis-tools      redis                redis             redis             redis
test program nginx              nginx-light      nginx                nginx             nginx             nginx
test program wrk                wrk              wrk                  wrk               wrk               wrk
test program memcached          memcached        memcached            memcached         memcached         memcached
test program memcaslap          libmemcached-tools libmemcached-awesome-tools libmemcached-awesome libmemcached libmemcached
test program dnsmasq            dnsmasq-base     dnsmasq              dnsmasq           dnsmasq           dnsmasq
test program dig                bind9-dnsutils   bind-utils           bind              bind-utils        bind-tools
test program crun               crun             crun                 crun              crun              crun
test program sockperf           sockperf         sockperf             sockperf          sockperf          sockperf
test program strace             strace           strace               strace            strace            strace
test program systemd-analyze    systemd          systemd              systemd           systemd           systemd
test program sshd               openssh-server   openssh-server       openssh           openssh           openssh-server
test program ssh                openssh-client   openssh-clients      openssh           openssh           openssh-client
test program openssl            openssl          openssl              openssl           openssl           openssl
test program prometheus         prometheus       prometheus           prometheus        golang-github-prometheus-prometheus prometheus
test program debootstrap        debootstrap      debootstrap          debootstrap       debootstrap       debootstrap
test program llvm-strip       llvm             llvm                 llvm              llvm              llvm
test program nft                nftables         nftables             nftables          nftables          nftables
most program clang-14           clang-14         -                    -                 -                 -
most program clang-16           clang-16         -                    -                 -                 -
more program clang-19           clang-19         -                    -                 -                 -
most program clang-22           clang-22         -                    -                 -                 -
peer program containerd         containerd       containerd           containerd        containerd        containerd
peer program haproxy            haproxy          haproxy              haproxy           haproxy           haproxy
peer program curl               curl             curl                 curl              curl              curl
peer program go                 golang-go        golang               go                go                go
peer program unbound            unbound          unbound              unbound           unbound           unbound
peer program dnsperf            dnsperf          dnsperf              dnsperf           dnsperf           dnsperf
peer system  grpc               python3-grpcio   python3-grpcio       python-grpcio     python3-grpcio    py3-grpcio
page program chromium           chromium         chromium             chromium          chromium          chromium
vm   program qemu-system-x86_64 qemu-system-x86  qemu-system-x86-core qemu-system-x86   qemu-x86          qemu-system-x86_64
vm   program busybox            busybox-static   busybox              busybox           busybox-static    busybox-static
vm   program depmod             kmod             kmod                 kmod              kmod              kmod
vm   program bpftool            bpftool          bpftool              bpf               bpftool           bpftool
vm   program dmsetup            dmsetup          device-mapper        device-mapper         device-mapper     device-mapper
vm   program cpio               cpio             cpio                 cpio              cpio              cpio
vm   program xz                 xz-utils         xz                   xz                xz                xz
vm   program zstd               zstd             zstd                 zstd              zstd              zstd
arm  program qemu-system-aarch64 qemu-system-arm qemu-system-aarch64-core qemu-system-aarch64 qemu-arm qemu-system-aarch64
arm  program aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc - -
vm   program wg                 wireguard-tools  wireguard-tools      wireguard-tools   wireguard-tools   wireguard-tools-wg
END
}

present() {
	case $1 in
	program) [ -x "$(command -v "$2")" ] ;;
	header) [ -e "/usr/include/$2" ] ;;
	library) pkg-config --exists "$2" ;;
	shared) "$PYTHON" -ISc "import ctypes; ctypes.CDLL('$2')" ;;
	module) "$PYTHON" -ISc "import $2" ;;
	system) /usr/bin/python3 -Ic "import $2" ;;
	esac >/dev/null 2>&1
}

# missing COLUMN GROUP...: that column of each row that is not there.
missing() {
	local column=$1 row
	shift
	requirements | while read -ra row; do
		case " $* " in
		*" ${row[0]} "*)
			present "${row[1]}" "${row[2]}" || echo "${row[column]}"
			;;
		esac
	done | sort -u | paste -sd' '
}

# The distribution's "COLUMN COMMAND": where the table has its names, and what
# installs them.
package_manager() {
	local ID='' ID_LIKE=''
	# shellcheck source=/dev/null
	[ ! -r /etc/os-release ] || . /etc/os-release
	case " $ID $ID_LIKE " in
	*" debian "* | *" ubuntu "*) echo 3 apt-get install ;;
	*" fedora "* | *" rhel "*) echo 4 dnf install ;;
	*" arch "*) echo 5 pacman -S ;;
	*suse*) echo 6 zypper install ;;
	*" alpine "*) echo 7 apk add ;;
	*) echo 2 install ;;
	esac
}

install_packages() {
	local column command wanted service
	read -r column command <<<"$(package_manager)"
	wanted=$(missing "$column" "$@")
	[ -n "$wanted" ] || return 0
	[ "$column" = 3 ] ||
		die "cannot install packages on this distribution: only Debian and Ubuntu are known; run \`$command $wanted\` and try again"
	check_python
	step "installing $wanted"
	apt_get update || fail "cannot read the package lists"
	# shellcheck disable=SC2086 # one word per package
	apt_get install $wanted || fail "cannot install packages"
	for service in irtt redis-server prometheus haproxy unbound; do
		case " $wanted " in *" $service "*) stop_service "$service" ;; esac
	done
	wanted=$(missing 2 "$@")
	[ -z "$wanted" ] || die "still missing after the installation: $wanted; the full log is $LOG"
}

apt_get() {
	DEBIAN_FRONTEND=noninteractive logged apt-get -y --no-install-recommends \
		-o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@"
}

# The tests start servers of their own; the package's service is not wanted.
stop_service() {
	if [ -d /run/systemd/system ]; then
		logged systemctl disable --now "$1" || true
	elif [ -x "/etc/init.d/$1" ]; then
		logged "/etc/init.d/$1" stop || true
	fi
}

# Before anything is downloaded for a Python that pip will refuse.
check_python() {
	[ ! -x "$PYTHON" ] || "$PYTHON" -ISc 'import sys; sys.exit(sys.version_info < (3, 11))' ||
		die "needs Python 3.11 or newer: $PYTHON is $("$PYTHON" -V); use Debian 12, Ubuntu 24.04 or newer"
}
