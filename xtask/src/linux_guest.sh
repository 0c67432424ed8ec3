#!/bin/busybox sh
# The guest of the suite `linux_guest`: repeats rounds of traffic until QEMU ends.
/bin/busybox --install /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
MODULES
ip link set eth0 up
ip addr add 10.66.3.2/24 dev eth0
echo "GUEST features $(cat /sys/bus/virtio/devices/virtio0/features)"
round=0
while :; do
  if ping -c 1 -W 1 10.66.3.1 > /dev/null; then
    download=$(sleep 5 | nc 10.66.3.1 9001 | md5sum | cut -c 1-32)
    dd if=/dev/zero bs=64k count=128 2> /dev/null | nc 10.66.3.1 9002
    round=$((round + 1))
    echo "GUEST round $round download $download"
  fi
done
