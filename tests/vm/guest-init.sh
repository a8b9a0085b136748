#!/bin/sh
#
# guest-init.sh - first process of the guest, run by busybox in the initramfs.
#
# Mounts the host's /, or another machine's, read-only over 9p, a tmpfs overlay on it, the
# kernel's own modules, the shares and the usual file systems; then guest-run.sh.

export PATH=/bin
/bin/busybox --install -s /bin

mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
while read -r module; do
	insmod "/modules/$module" || echo "init: cannot load $module"
done </modules/order

share() { # TAG FOLDER [OPTION]
	mount -t 9p -o "trans=virtio,version=9p2000.L,msize=512000${3:-}" "$1" "$2" || {
		echo "init: cannot mount $1"
		poweroff -f
	}
}

over() { # LOWER NAME FOLDER: make LOWER writable at FOLDER, in memory
	mkdir -p "/upper/$2" "/upper/$2.work"
	mount -t overlay -o "lowerdir=$1,upperdir=/upper/$2,workdir=/upper/$2.work" overlay "$3" || {
		echo "init: cannot overlay $1"
		poweroff -f
	}
}

share root /lower ,ro,cache=loose
mount -t tmpfs -o mode=755 tmpfs /upper
over /lower root /new

mkdir /upper/control /upper/modules
share control /upper/control
# shellcheck source=/dev/null
. /upper/control/settings

release=$(uname -r)
mkdir -p /new/proc /new/sys /new/dev /new/run "/new$CHECKOUT" "/new$SHARE" \
	"/new/lib/modules/$release"
[ -z "$CHECKOUT" ] || share checkout "/new$CHECKOUT" ,ro,cache=loose
share share "/new$SHARE"
share modules /upper/modules ,ro,cache=loose
over /upper/modules modules_top "/new/lib/modules/$release"
mount -t tmpfs tmpfs /new/run
mkdir /new/run/control
mount --move /upper/control /new/run/control

for folder in dev proc sys; do
	mount --move "/$folder" "/new/$folder"
done
mkdir -p /new/dev/pts /new/dev/shm /new/dev/net
mount -t devpts devpts /new/dev/pts
mount -t tmpfs shm /new/dev/shm
ln -sf /proc/self/fd /new/dev/fd
mknod /new/dev/net/tun c 10 200 # as udev does; opening it loads the module
mount -t bpf bpf /new/sys/fs/bpf
mount -t debugfs debugfs /new/sys/kernel/debug
mount -t tracefs tracefs /new/sys/kernel/tracing
mount -t cgroup2 cgroup2 /new/sys/fs/cgroup

ip link set lo up
hostname vm
cp /bin/busybox /guest-run /new/run/
[ -n "$SYSTEMD" ] || exec switch_root /new /run/guest-run

# Nothing of the host's own services: they would clean its /tmp file by file. Nor is
# the guest a container, if the host is one.
rm -f /new/.dockerenv
mkdir -p /new/run/systemd/system
for unit in /new/lib/systemd/system/*.target.wants/* /new/etc/systemd/system/*.target.wants/*; do
	case $unit in
	*/systemd-journald.service) ;;
	*) ln -sf /dev/null "/new/run/systemd/system/${unit##*/}" ;;
	esac
done
cat >/new/run/systemd/system/guest.service <<'END'
[Service]
Type=oneshot
ExecStart=/run/guest-run
END
exec switch_root /new /lib/systemd/systemd --unit=guest.service
