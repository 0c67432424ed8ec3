#!/bin/sh
# boot.sh ROOT: starts systemd as process 1 of a Debian root directory, to check the package.
# The caller made the namespaces: `unshare --pid --fork --mount --net --ipc --uts --cgroup`.
set -e
root=$1
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o dev,mode=755 tmpfs "$root/dev"
cd "$root/dev"
for node in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
    name=${node%%:*} numbers=${node#*:}
    mknod -m 666 "$name" c "${numbers%:*}" "${numbers#*:}"
done
mkdir net pts shm
mknod -m 666 net/tun c 10 200
mknod -m 600 console c 5 1
ln -s pts/ptmx ptmx
ln -s /proc/self/fd fd
mount -t tmpfs tmpfs "$root/run"
cd "$root"
mkdir -p mnt
# A service with its own mounts needs a root that is a mount, not a chroot.
pivot_root . mnt
umount -l /mnt
exec chroot . /usr/bin/env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --unit=multi-user.target --show-status=0
