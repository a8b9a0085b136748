#!/run/busybox sh
#
# guest-run.sh - say that the guest is up, run the command, leave its exit status on
# the control share, and switch the guest off. Its output goes over the second serial line.

# shellcheck shell=dash
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root TERM=dumb LANG=C.UTF-8

# shellcheck source=/dev/null
. /run/control/settings
/run/busybox stty -F "$OUTPUT" raw -echo 115200
cd "$FOLDER" || cd /
: >/run/control/up
/bin/bash /run/control/command </dev/null >"$OUTPUT" 2>&1
echo $? >/run/control/status.new
mv /run/control/status.new /run/control/status

# The last close waits until the line has drained.
exec 3>"$OUTPUT"
exec 3>&-
sync
/run/busybox poweroff -f
